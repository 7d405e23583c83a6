"""What would have to be different: dry runs, and changes that are tried before they are suggested."""
