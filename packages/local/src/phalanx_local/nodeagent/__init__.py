"""Node agent: simulates kubelets over the Kubernetes API, for many nodes in one process."""
