"""The dry runs behind the page, in a process of their own."""
