"""What operators make, as a scheduler sees it."""
