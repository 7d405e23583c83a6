"""Job plugins: hosts, ssh keys, variables of MPI, PyTorch and others (docs/rules/jobs.md, B6)."""
