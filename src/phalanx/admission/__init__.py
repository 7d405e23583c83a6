"""Admission: the validation and defaulting rules for objects that users write, and the webhook that applies them
(docs/rules/)."""
