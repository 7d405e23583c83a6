"""Functions as a gang: a hub in the pod of rank 0, workers in all pods, and the client that sends the functions.

Every connection is mutual TLS with certificates of this gang; no byte of another peer is unpickled.
"""
