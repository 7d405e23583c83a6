"""What keeps the books of things that pods get one by one on nodes: ports, volumes, devices."""
