"""Phalanx: a batch scheduler for Kubernetes. A gang moves as one, or not at all."""
