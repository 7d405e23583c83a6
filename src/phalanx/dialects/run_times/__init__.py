"""How long pods run: every spelling of limits and estimates, and which of them hold."""
