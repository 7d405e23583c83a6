"""Node allocators: bookkeeping of things that pods reserve one by one on nodes, such as ports, volumes, devices."""
