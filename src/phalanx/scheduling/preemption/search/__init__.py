"""Search for victims: candidates, the orders in which they are tried, and the work limit."""
