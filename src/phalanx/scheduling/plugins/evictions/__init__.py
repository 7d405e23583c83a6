"""Plugins with an opinion on who may be evicted, and who should be."""
