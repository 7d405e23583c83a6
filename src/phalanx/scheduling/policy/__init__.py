"""The policy file, and the plugins and actions that it can name."""
