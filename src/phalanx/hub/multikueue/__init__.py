"""External dispatcher of Kueue's MultiKueue."""
