"""Admission rule for pods: they must not use quota that is reserved for a gang (`phalanx.jobs.reservations`). Fails
open.

Only for namespaces with the label `phalanx.dev/quota-reservation: enabled`, which a separate webhook selects.
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

# Concurrent admissions of pods conflict at the ledger.
_TRIES = 8


class QuotaReservationCheck:
    """Check of new pods against quota reserved for other gangs. An admitted pod is written into the ledger before
    the response, so that two replicas cannot admit two pods for the same quota. `home` is the namespace of the
    ledgers."""

    def __init__(
        self, client: KubeClient, home: str, declarations: GangDeclarations, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._home = home
        self._declarations = declarations
        self._now = now

    async def refusal(self, namespace: str, request: str, pod: dict[str, Any]) -> str:
        """Return the reason why a pod would use quota reserved for other gangs, "" if it would not, or if the check
        fails. `request` is the uid of the admission review."""
        try:
            return await self._check(namespace, request, pod)
        except (ApiError, ConnectionLost, msgspec.DecodeError) as error:
            log.warning("admitting a pod without a check of reserved quota in namespace %s: %s", namespace, error)
            return ""

    async def _check(self, namespace: str, request: str, pod: dict[str, Any]) -> str:
        path = CONFIG_MAPS.path(self._home, LEDGER_PREFIX + namespace)
        spec, gang = mapping(pod.get("spec")), self._gang(pod)
        for tries_left in reversed(range(_TRIES)):
            try:
                stored = await self._client.get(path)
            except ApiError as error:
                if error.status == 404:
                    return ""
                raise
            ledger, now = read_ledger(stored), int(self._now())
            if not holds_something(ledger):
                return ""
            refusal, usage = refusal_of_pod(ledger, await self._quotas(namespace), spec, gang, now)
            if refusal or is_covered(ledger, gang, usage):
                return refusal
            current = {
                uid: admission
                for uid, admission in ledger.in_flight.items()
                if now < admission.at + IN_FLIGHT_SECONDS
            }
            changed: ReservationLedger = replace(ledger, in_flight={**current, request: usage})
            try:
                await self._client.replace(path, with_ledger(stored, changed))
            except ApiError as error:
                if error.status != 409 or not tries_left:
                    raise
            else:
                return ""
        return ""

    def _gang(self, pod: dict[str, Any]) -> str:
        read: PodObject = decode_pod(msgspec.json.encode(pod))
        declared = self._declarations.declare(read)
        return declared.name if declared is not None else ""

    async def _quotas(self, namespace: str) -> list[NamespaceQuota]:
        listed = await self._client.list_all(RESOURCE_QUOTAS.path(namespace))
        quotas = (read_quota(msgspec.json.encode(item)) for item in listed.get("items") or ())
        return [quota for quota in quotas if quota is not None]
