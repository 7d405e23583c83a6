"""From API objects to the specs of `model`, and from verdicts back to status."""
