"""Pods must not take quota that is held for a group (`phalanx.jobs.reservations`). Fails open.

For namespaces with the label `phalanx.dev/quota-reservation: enabled` only; a webhook of its own selects them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.dialects.core import PodObject, decode_pod
from phalanx.dialects.gangs.declaration import GangDeclarations
from phalanx.jobs.quota_shortage import NamespaceQuota, read_quota
from phalanx.jobs.reservations import (
    IN_FLIGHT_SECONDS,
    LEDGER_PREFIX,
    ReservationLedger,
    holds_something,
    is_covered,
    read_ledger,
    refusal_of_pod,
    with_ledger,
)
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS, RESOURCE_QUOTAS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.pod_quota import mapping

log = logging.getLogger(__name__)

# Pods that are admitted at the same time meet at the ledger.
_TRIES = 8


class QuotaReservationCheck:
    """Judges the creation of pods. What is admitted is written into the ledger before it is answered, so that two
    replicas do not give the last room to two pods. `home` is the namespace of the ledgers."""

    def __init__(
        self, client: KubeClient, home: str, declarations: GangDeclarations, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._home = home
        self._declarations = declarations
        self._now = now

    async def refusal(self, namespace: str, request: str, pod: dict[str, Any]) -> str:
        """Why a pod must not be created, "" where it may be, or where nobody can tell. `request` is the uid of the
        admission review."""
        try:
            return await self._judge(namespace, request, pod)
        except (ApiError, ConnectionLost, msgspec.DecodeError) as error:
            log.warning("reserved quota of namespace %s was not looked at: %s", namespace, error)
            return ""

    async def _judge(self, namespace: str, request: str, pod: dict[str, Any]) -> str:
        path = CONFIG_MAPS.path(self._home, LEDGER_PREFIX + namespace)
        spec, gang = mapping(pod.get("spec")), self._gang(pod)
        for left in reversed(range(_TRIES)):
            try:
                stored = await self._client.get(path)
            except ApiError as error:
                if error.status == 404:
                    return ""
                raise
            ledger, now = read_ledger(stored), int(self._now())
            if not holds_something(ledger):
                return ""
            refusal, taken = refusal_of_pod(ledger, await self._quotas(namespace), spec, gang, now)
            if refusal or is_covered(ledger, gang, taken):
                return refusal
            kept = {uid: each for uid, each in ledger.in_flight.items() if now < each.at + IN_FLIGHT_SECONDS}
            changed: ReservationLedger = replace(ledger, in_flight={**kept, request: taken})
            try:
                await self._client.replace(path, with_ledger(stored, changed))
            except ApiError as error:
                if error.status != 409 or not left:
                    raise
            else:
                return ""
        return ""

    def _gang(self, pod: dict[str, Any]) -> str:
        read: PodObject = decode_pod(msgspec.json.encode(pod))
        declared = self._declarations.declare(read)
        return declared.name if declared is not None else ""

    async def _quotas(self, namespace: str) -> list[NamespaceQuota]:
        found = await self._client.list_all(RESOURCE_QUOTAS.path(namespace))
        quotas = (read_quota(msgspec.json.encode(item)) for item in found.get("items") or ())
        return [quota for quota in quotas if quota is not None]
