"""How a process comes by the address of an API server and by the right to ask it."""
