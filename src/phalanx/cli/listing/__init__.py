"""Lists on the command line with kubectl's options, formats and tables, and compressed node names."""
