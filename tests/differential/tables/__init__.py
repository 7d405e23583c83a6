"""Cases of kube-scheduler's own tests, as facts: what is there, what comes, and what the plugin says to it."""
