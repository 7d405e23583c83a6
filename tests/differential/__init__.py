"""Our verdicts against a slow, literal reading of kube-scheduler's rules."""
