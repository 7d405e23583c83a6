"""What-if analysis: dry runs, and changes that are tried before they are suggested."""
