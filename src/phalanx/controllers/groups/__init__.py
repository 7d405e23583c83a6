"""Controllers of gangs, independent of their pods' owner: restarts, suspended jobs, quota reservations."""
