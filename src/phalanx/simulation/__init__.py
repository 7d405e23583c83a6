"""The real scheduler in virtual time: workloads and clusters in, measurements out."""
