"""Served resource types, and the operations on their objects, without HTTP."""
