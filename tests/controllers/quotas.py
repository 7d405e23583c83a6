"""A ResourceQuota that a server in memory enforces as the real one does: charged with each pod, in its status."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.jobs.quota_shortage import quota_shortage, read_quota
from phalanx.kube.errors import ApiError
from phalanx.model.pod_quota import NONE, Amounts, plus
from tests.controllers.api import Json, MemoryApi

QUOTAS = "v1/resourcequotas"
_PODS = "v1/pods"


class Quotas:
    """All quotas of a server. `recount` plays the quota controller: deleted objects are no longer charged."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api
        self.refusals = 0
        api.refuse = self._check

    def set(self, name: str, hard: Json, **spec: Any) -> None:
        self._api.apply(
            QUOTAS,
            {"metadata": {"name": name}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": {}}},
        )
        self.recount()

    def used(self, name: str) -> Json:
        used: Json = self._api.get_object(QUOTAS, name)["status"]["used"]
        return used

    def recount(self, also: Json | None = None) -> None:
        pods = [pod for pod in self._api.all(_PODS) if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        for quota in self._api.all(QUOTAS):
            read = read_quota(msgspec.json.encode(quota))
            assert read is not None
            used: Amounts = dict.fromkeys(read.hard, NONE)
            for pod in [*pods, *([also] if also is not None else [])]:
                for name, amount in read.charge(pod["spec"]).items():
                    used[name] = plus(used[name], amount)
            told = {name: str(amount) for name, amount in used.items()}
            if told != quota["status"]["used"]:
                self._api.update(
                    QUOTAS,
                    quota["metadata"]["name"],
                    lambda it, told=told: it["status"].update(used=told),  # type: ignore[misc]
                )

    def _check(self, collection: str, body: Json) -> None:
        if collection != _PODS:
            return
        quotas = [read_quota(msgspec.json.encode(quota)) for quota in self._api.all(QUOTAS)]
        short = quota_shortage([quota for quota in quotas if quota is not None], [(body["spec"], 1)])
        if short is not None:
            self.refusals += 1
            amounts = f"requested: {short.resource}={short.wanted}, used: {short.resource}=?"
            text = f"exceeded quota: {short.quota}, {amounts}, limited: {short.resource}={short.hard}"
            raise ApiError(403, "Forbidden", text)
        self.recount(also=body)
