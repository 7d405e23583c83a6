"""Controllers of JobFlow and JobTemplate (flow.volcano.sh)."""
