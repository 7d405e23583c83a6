"""The verbs: each module is one action of Volcano's vocabulary."""
