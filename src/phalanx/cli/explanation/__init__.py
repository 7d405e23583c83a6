"""Commands that explain waiting gangs, the scheduling order and the effect of changes."""
