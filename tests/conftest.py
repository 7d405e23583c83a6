"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("phalanx", deadline=None)
settings.load_profile("phalanx")

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that. Whoever is asked to
# ignore it keeps ignoring it, as any command does; the commands that tests interrupt are not asked.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
