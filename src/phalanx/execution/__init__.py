"""Execution of scheduling plans: bindings, conditions, statuses and events, in that order of urgency."""
