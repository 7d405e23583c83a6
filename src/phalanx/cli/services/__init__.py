"""Commands that run until a signal: the scheduler and what is around it."""
