"""What jobs ask for by name: hosts, ssh keys, variables of MPI, PyTorch and others (docs/rules/jobs.md, B6)."""
