"""Pod affinity and topology spread: which pods are meant, and how many of them are in which domain."""
