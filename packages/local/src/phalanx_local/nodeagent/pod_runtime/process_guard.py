"""Guard process that outlives the node agent: when the agent dies, the guard kills the processes that the agent
started.

It reads `+GROUP` and `-GROUP` (process group ids) line by line from standard input. The input ends when the agent
ends, for any reason; then the guard kills the remaining groups. It runs as a script, so it imports no module of
Phalanx.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    # The agent handles a Ctrl-C in the terminal; the guard ends after the agent.
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
