"""Process of a pod of a gang: settings, signals and exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable

from phalanx.sdk.gang.settings import MemberSettings


def run_in_pod(run: Callable[[MemberSettings, asyncio.Event], Awaitable[int]]) -> int:
    """Call `run` with the settings of this pod and an event that SIGTERM and SIGINT set; return its exit code.

    Invalid settings, keys and addresses end the process with one line and exit code 1.
    """

    async def until_stopped(settings: MemberSettings) -> int:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        return await run(settings, stopping)

    try:
        return asyncio.run(until_stopped(MemberSettings.of_environment(os.environ)))
    except (ValueError, OSError, ssl.SSLError) as error:
        print(f"cannot join the gang: {error}", file=sys.stderr)
        return 1
