"""Controller of Volcano's Job."""
