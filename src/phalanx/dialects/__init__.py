"""Translation of API objects into the specs of `model`, and of verdicts into object status."""
