"""`make pictures`: the pictures that the documents show, made from the real page, the real commands and a seeded cluster."""
