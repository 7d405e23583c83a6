"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("phalanx", deadline=None)
settings.load_profile("phalanx")

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that. A command that is
# started so keeps ignoring it, as any does; those that tests interrupt are not started so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
