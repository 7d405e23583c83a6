"""Strategies of the kinds: defaults, admission, validation, selectable fields."""
