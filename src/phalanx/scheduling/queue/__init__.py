"""Scheduling queue: active units in order, and unschedulable units by wait reason."""
