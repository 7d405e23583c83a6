"""`make pictures`: what the documents show, made from the real page, the real commands and a seeded cluster."""
