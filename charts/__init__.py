"""The Helm chart, and what of it is made from the code."""
