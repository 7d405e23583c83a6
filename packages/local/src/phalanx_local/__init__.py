"""The cluster on this machine: a Kubernetes API server in one process, and a node agent.

From the outside in: `server` puts everything together; `endpoints` read requests and encode answers (`http`
hands them to `resource_handler`; `listing`, `watching` and `tables` show what is there; `faults` breaks things
on purpose); `authentication` and `authorization` say who may; `registry.api` does what is asked for, with the
rules of each kind in `strategies`, `validation`, `schema`, `admission` and `patches`; `storage` holds it as
immutable records and keeps them in a file. `controllers` do inside the server what a cluster cannot do without.
`nodeagent` plays the kubelets.

Everything between a parsed request and its encoded answer is synchronous, so each write is atomic.
"""
