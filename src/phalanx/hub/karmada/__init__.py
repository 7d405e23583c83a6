"""Scheduler of Karmada's bindings for policies that name this scheduler."""
