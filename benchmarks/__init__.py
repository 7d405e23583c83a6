"""Measurements that prove what the README claims. `python -m benchmarks` runs them all."""
