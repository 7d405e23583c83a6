"""Pod affinity and topology spread: the selected pods, and their number per domain."""
