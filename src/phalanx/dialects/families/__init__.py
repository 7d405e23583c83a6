"""Dialects that declare gangs: one module per API family."""
