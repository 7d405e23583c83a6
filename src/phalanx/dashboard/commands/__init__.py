"""Answers to commands of users who lack the rights to read the whole cluster, by the page's API."""
