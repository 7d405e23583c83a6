"""Storage of the server: objects as immutable records, the history of changes, and the data file."""
