"""Volumes of pods, and the claims, classes, drivers and attachments that they depend on."""
