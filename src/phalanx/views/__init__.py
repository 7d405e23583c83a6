"""State of gangs as every list, page, metric and report shows it: derived once, from a small record of facts."""
