"""Lists with kubectl's options, formats and tables, and compressed node names."""
