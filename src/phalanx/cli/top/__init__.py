"""`phalanx top`: live queues, gangs and nodes in a terminal."""
