"""What a person types. Command modules import their machinery when they run, so that `--help` is quick."""
