"""Local cluster: a Kubernetes API server in one process, and a node agent.

The layers from outside to inside: `server` assembles all parts. `endpoints` parse requests and encode responses
(`http` passes them to `resource_handler`; `listing`, `watching` and `tables` serve reads; `faults` injects
failures). `authentication` and `authorization` check users and rights. `registry.api` executes operations with
the rules of each kind in `strategies`, `validation`, `schema`, `admission` and `patches`. `storage` contains the
objects as immutable records and persists them in a file. `controllers` are the control loops that a cluster
needs. `nodeagent` simulates the kubelets.

All code between a parsed request and its encoded response is synchronous, so each write is atomic.
"""
