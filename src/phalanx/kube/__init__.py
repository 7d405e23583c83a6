"""Client side of the Kubernetes API: credentials, transport, informers, leases, events, patches."""
