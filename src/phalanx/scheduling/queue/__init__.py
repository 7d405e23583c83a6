"""Scheduling queue: active gangs and pods in order, and unschedulable ones by wait reason."""
