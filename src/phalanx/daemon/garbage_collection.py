"""The garbage collector while a whole cluster is read."""

from __future__ import annotations

import asyncio
import gc

# Allocations between collections of the youngest generation while reading; those of older ones do not come then.
_YOUNGEST = 100_000
# Who is not ready after so many seconds (a standby) is not reading any more.
_LONGEST = 120.0
# The first cycles put what was read in order; that stays as well.
_FIRST_CYCLES = 10.0


async def until_ready(ready: asyncio.Event) -> None:
    """Waits; until then the collector looks at what is new only, and afterwards never again at what was read.

    What is read stays, so that to walk over it again and again finds nothing: it took a quarter of the time from
    the start to the first binding in a cluster of 56,000 pods.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNGEST, 1_000, 1_000)
    try:
        async with asyncio.timeout(_LONGEST):
            await ready.wait()
    except TimeoutError:
        pass
    finally:
        gc.freeze()
        gc.set_threshold(*thresholds)
    await ready.wait()
    asyncio.get_running_loop().call_later(_FIRST_CYCLES, gc.freeze)
