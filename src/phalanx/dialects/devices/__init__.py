"""Devices: resource.k8s.io, and cards that pods share by annotations."""
