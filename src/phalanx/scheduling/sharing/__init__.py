"""How much of something each of several may have: pure arithmetic on exact integers."""
