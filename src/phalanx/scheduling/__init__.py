"""Decisions: a session over the cluster's arrays, actions that place pods, and plugins that filter, score and vote.
Without I/O."""
