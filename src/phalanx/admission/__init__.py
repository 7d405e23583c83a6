"""Admission: the rules for objects that users write, and the webhook that applies them (docs/rules/)."""
