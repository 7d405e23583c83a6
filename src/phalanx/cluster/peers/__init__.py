"""Who is where, counted for those who mind."""
