"""JobFlow and JobTemplate of flow.volcano.sh."""
