"""Aggregation layer: requests of API groups that an APIService serves are forwarded to its server.

https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""
