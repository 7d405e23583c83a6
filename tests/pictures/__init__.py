"""`make pictures`: pictures of the documents, made from the real page, the real commands and a seeded cluster."""
