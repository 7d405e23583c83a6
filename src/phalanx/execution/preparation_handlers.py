"""Who carries out which kind of preparation."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.execution.preparation import Handler
from phalanx.execution.writes import PooledClient
from phalanx.model.preparations import Preparation


def preparation_handlers(client: PooledClient) -> Mapping[type[Preparation], Handler]:
    return {}
