"""What the server keeps: objects as immutable records, the history of changes, and the file that holds them."""
