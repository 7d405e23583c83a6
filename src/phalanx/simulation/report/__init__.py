"""Reports of a simulation: files that are identical for identical inputs."""
