"""Beside Kueue: the external dispatcher of MultiKueue."""
