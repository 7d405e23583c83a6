"""The controller of Volcano's Job."""
