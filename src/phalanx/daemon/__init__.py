"""The scheduler process: what is observed flows in, what is decided flows out."""
