"""What would be if: questions to the scheduler over a copy of a cluster, in virtual time."""
