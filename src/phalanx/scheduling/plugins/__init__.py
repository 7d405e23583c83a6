"""The opinions: each module is one plugin of Volcano's vocabulary."""
