"""Manifests of `phalanx install`, and the command itself."""
