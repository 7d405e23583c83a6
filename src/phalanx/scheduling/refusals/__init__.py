"""Facts of fit errors, shared by all units with one wait reason, and the verdicts rendered from them."""
