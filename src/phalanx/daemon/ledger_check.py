"""Option `--self-check`: compare the usage of queues and quotas with their pods after changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.daemon.service_part import ServiceError

log = logging.getLogger(__name__)

_PERIOD = 1.0


class LedgerCheck:
    """Comparison of the ledger's sums with the pods, once a second; `count` receives the number of differences."""

    def __init__(self, state: ClusterState, count: Callable[[int], None]) -> None:
        self._state = state
        self._count = count

    async def run(self) -> None:
        """Compare the ledger with the pods after each change until cancelled. Raises ServiceError for a
        difference."""
        checked = -1
        while True:
            await asyncio.sleep(_PERIOD)
            if checked == self._state.version:
                continue
            checked = self._state.version
            differences = list(self._state.ledger.discrepancies(self._state.pods.values()))
            for difference in differences:
                log.critical("self-check: %s", difference)
            self._count(len(differences))
            if differences:
                raise ServiceError(f"self-check: {len(differences)} accounts differ from the sum of their pods")
