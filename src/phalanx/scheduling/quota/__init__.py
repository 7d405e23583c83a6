"""What accounts may hold: limits, the tree of queues, and how shares are computed."""
