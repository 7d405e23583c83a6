"""Volumes: which volumes pods require, and which volumes nodes can reach."""
