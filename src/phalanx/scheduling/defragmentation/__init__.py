"""Defragmentation: running pods move to other nodes so that nodes become empty, or a waiting gang fits."""
