"""HTTP/1.1 to one API server: connections, their settings, and what is asked over them."""
