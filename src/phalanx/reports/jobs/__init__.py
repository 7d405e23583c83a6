"""Jobs of all kinds as users see them."""
