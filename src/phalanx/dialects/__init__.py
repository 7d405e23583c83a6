"""From API objects to the nouns of `model`, and from verdicts back to status."""
