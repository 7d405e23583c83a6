"""Plugins that protect pods from eviction or select pods for eviction."""
