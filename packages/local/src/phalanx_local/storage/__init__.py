"""Storage of the API server: objects as immutable records, the history of changes, and the data file."""
