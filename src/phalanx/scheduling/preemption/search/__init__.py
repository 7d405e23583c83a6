"""The search for victims: in which order they are tried, on which nodes, and how far it goes."""
