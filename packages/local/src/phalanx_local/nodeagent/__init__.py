"""The node agent: plays kubelets over the Kubernetes API, for many nodes in one process."""
