"""resource.k8s.io, and the cards that pods share by annotations."""
