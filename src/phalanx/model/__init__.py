"""The specs: immutable values that every package may speak of. Imports nothing of ours."""
