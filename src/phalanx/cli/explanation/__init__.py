"""Commands that say why, who is next, and what would happen."""
