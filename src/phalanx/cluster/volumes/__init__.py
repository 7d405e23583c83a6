"""What volumes ask of nodes, and what nodes have for them."""
