"""Plugins that order units."""
