"""Controllers of gangs whatever makes their pods: restarts, suspended jobs."""
