"""Objects of operators, as a scheduler sees them."""
