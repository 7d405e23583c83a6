"""Questions of commands to the server of the page, for users whose rights do not suffice to read the cluster."""
