"""Job plugins: hosts, ssh keys, variables for MPI, PyTorch and similar frameworks (docs/rules/jobs.md, B6)."""
