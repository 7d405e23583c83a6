"""Immutable values that every package can use; imports no other package of Phalanx."""
