"""Controllers beside scheduling: objects that the process creates, gates and gangs that it releases."""
