"""Pods and gangs as the cluster keeps them: where they are, what they hold, what was decided for them."""
