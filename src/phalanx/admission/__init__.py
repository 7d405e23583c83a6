"""Admission: the rules for objects that users write, and the webhook that tells them (docs/rules/)."""
