"""What waits: units in order, and those that are unschedulable until something can help them."""
