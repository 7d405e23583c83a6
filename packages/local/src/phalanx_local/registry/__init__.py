"""What is served, resource by resource, and the operations on it, without HTTP."""
