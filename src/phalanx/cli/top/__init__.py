"""`phalanx top`: queues, gangs and nodes in a terminal, live."""
