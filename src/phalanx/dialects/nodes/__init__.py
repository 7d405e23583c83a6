"""Node properties beside core/v1: images, NUMA nodes, HyperNodes, maintenance."""
