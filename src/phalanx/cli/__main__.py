"""Entry point of `python -m phalanx.cli`, which is `phalanx`."""

from phalanx.cli.main import main

main()
