"""Cases of kube-scheduler's own tests, as facts: existing objects, the new pod, and the plugin's result."""
