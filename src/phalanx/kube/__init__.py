"""The Kubernetes API from the client's side: credentials, transport, informers, leases, events, patches."""
