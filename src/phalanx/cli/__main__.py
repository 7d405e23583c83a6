"""`python -m phalanx.cli` is `phalanx`."""

from phalanx.cli.main import main

main()
