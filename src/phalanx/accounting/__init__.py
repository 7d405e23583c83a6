"""Usage of gangs, recorded beyond the life of their objects: the recorder's process and queries of its database."""
