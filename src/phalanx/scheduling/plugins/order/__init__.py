"""Plugins that order waiting gangs and pods."""
