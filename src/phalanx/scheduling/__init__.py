"""Decisions: a session over the cluster's arrays, actions that act and plugins that have opinions. Sans-IO."""
