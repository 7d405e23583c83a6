"""Plugins of policies: each module is one plugin of Volcano's vocabulary."""
