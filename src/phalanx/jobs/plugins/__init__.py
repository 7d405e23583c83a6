"""Job plugins of Volcano: host names, ssh keys, variables for MPI, PyTorch and similar frameworks
(docs/rules/jobs.md, B6)."""
