"""Devices: ResourceClaims of resource.k8s.io, and GPUs that pods share by annotations."""
