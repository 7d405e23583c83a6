"""Beside Karmada: the scheduler of bindings whose policy names it."""
