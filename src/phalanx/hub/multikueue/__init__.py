"""External dispatcher of Kueue's MultiKueue, which nominates clusters by forecast start."""
