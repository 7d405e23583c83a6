"""Findings of `phalanx migrate` about another scheduler's objects, per object and field."""
