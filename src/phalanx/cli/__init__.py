"""Command line of Phalanx. Command modules import the code that they run only when they run, so that `--help` is
quick."""
