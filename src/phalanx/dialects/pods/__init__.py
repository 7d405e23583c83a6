"""Decoding of core/v1 Pods into specs and classes, and pod properties that other objects decide."""
