"""What the process mends by itself beside scheduling: objects that it makes, gates and gangs that it releases."""
