"""Duties that schedulers forget most often: 45 of them, each with a test of its own or named tests that prove
it.
"""
