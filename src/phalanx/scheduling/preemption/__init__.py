"""Making room by eviction: who may go for whom, at what cost, and the search for the cheapest answer."""
