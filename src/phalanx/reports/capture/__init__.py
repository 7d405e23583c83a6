"""Captures (files with the recorded state) of a live cluster for simulations and what-if questions: all data that
the scheduler reads, without secrets."""
