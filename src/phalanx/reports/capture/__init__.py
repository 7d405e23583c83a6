"""A live cluster written down for simulations and what-if questions: what the scheduler reads, and no secrets."""
