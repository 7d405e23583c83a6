"""What people read after a simulation: files that are the same for the same inputs."""
