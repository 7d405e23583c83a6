"""Jobs of all kinds as commands and pages show them."""
