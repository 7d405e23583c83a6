"""What nodes and their networks say beside core/v1: images, NUMA nodes, HyperNodes."""
