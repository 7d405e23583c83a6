"""A small process that outlives the agent for a moment: when the agent dies, it kills what the agent started.

Reads `+GROUP` and `-GROUP` (process group ids) line by line from standard input; at its end, which is the
agent's end however it came, it kills the groups that are left. Run as a script, so it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    # A Ctrl-C in the terminal is the agent's to handle; we go when it has gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        text = line.strip()
        if text[1:].isdigit() and int(text[1:]) > 1:
            (groups.add if text[:1] == b"+" else groups.discard)(int(text[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
