"""The APIs in which gangs are declared: one module per family."""
