"""What the tables of the page say, a module a kind of row."""
