"""Plugins with an opinion on who comes first."""
