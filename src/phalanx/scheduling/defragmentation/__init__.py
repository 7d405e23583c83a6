"""How nodes become free, or room for a gang is made, by moving pods that fit elsewhere."""
