"""Actions of the cycle: each module is one action of Volcano's vocabulary."""
