"""`--self-check`: accounts are compared with their pods while things change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.daemon.service_part import ServiceError

log = logging.getLogger(__name__)

_PERIOD = 1.0


class LedgerCheck:
    """Compares the sums of the ledger with the pods once a second; `count` receives the number of differences."""

    def __init__(self, state: ClusterState, count: Callable[[int], None]) -> None:
        self._state = state
        self._count = count

    async def run(self) -> None:
        """Check after each change until cancelled. Raises ServiceError when an account differs from its pods."""
        checked = -1
        while True:
            await asyncio.sleep(_PERIOD)
            if checked == self._state.version:
                continue
            checked = self._state.version
            wrong = list(self._state.ledger.discrepancies(self._state.pods.values()))
            for sentence in wrong:
                log.critical("self-check: %s", sentence)
            self._count(len(wrong))
            if wrong:
                raise ServiceError(f"self-check: {len(wrong)} accounts differ from what their pods say")
