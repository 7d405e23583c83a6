"""The nouns of the house: immutable values that every room may speak of. Imports nothing of ours."""
