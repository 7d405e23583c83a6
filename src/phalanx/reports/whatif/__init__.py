"""What-if questions: simulations of the scheduler over a copy of a cluster, in virtual time."""
