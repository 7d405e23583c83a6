"""Strategies of the kinds, called at each write: defaults, admission, validation, selectable fields."""
