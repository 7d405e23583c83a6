"""What each kind of unit does with each kind of wait reason: the one place that tells them apart."""
