"""Jobs of all kinds as their users look at them."""
