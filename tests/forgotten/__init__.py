"""What schedulers forget most often: 45 duties, each with a test of its own or named tests that prove it."""
