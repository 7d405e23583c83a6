"""Controllers of gangs that do not depend on the pods' owner: restarts, suspended jobs, quota reservations."""
