"""Usage of gangs, recorded in a database beyond the life of their objects: the recorder's process and queries of
the database."""
