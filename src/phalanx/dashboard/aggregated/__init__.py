"""Aggregated API `visibility.phalanx.dev`: the answers of commands on the path of the Kubernetes API server.

Users whose kubeconfig has a client certificate have no token for the page. The API server authenticates them, and
forwards their requests with its own certificate (the front proxy of the aggregation layer).
https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""
