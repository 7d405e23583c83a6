"""Controllers of the scheduler process beside scheduling: objects that the process creates, gates and gangs that it
releases."""
