"""Kinds of units, and the behaviour of each kind for each wait reason. Only this package distinguishes the
kinds.
"""
