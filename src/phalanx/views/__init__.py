"""State, name and promised start of gangs as every list, page, metric and report shows them: derived once, from
small records."""
