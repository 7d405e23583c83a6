"""Carries a plan out: bindings, conditions, statuses and events, in that order of urgency."""
