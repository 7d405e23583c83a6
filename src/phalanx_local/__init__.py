"""The embedded cluster: a Kubernetes API server in one process.

From the outside in: `server` puts everything together; `http` reads requests (`routes`, `negotiation`,
`authentication`, `wire`) and `resourcehandler` dispatches them; `api` does what they ask for, with the rules of
each kind in `strategies`, `patching`, `patches`, `schema`, `validation` and `subresources`; `listing`, `watching`
and `tables` show what is there; `store` holds it as immutable `records`, and `journal` keeps them in a file.
`controllers` do inside the server what a cluster cannot do without; `faults` breaks things on purpose.

Everything between a parsed request and its encoded answer is synchronous, so each write is atomic.
"""
