"""Entry point for `python -m haptic_trio`."""

from haptic_trio.cli.main import main

main()
