"""Status of PodDisruptionBudgets: the number of allowed evictions.

https://kubernetes.io/docs/tasks/run-application/configure-pdb/
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, Final

from phalanx.model.matching import all_hold
from phalanx_local.clock import parse_timestamp
from phalanx_local.controllers.base import Controller
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import Json, dig, mapping, metadata, sequence, text
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

BUDGETS: Final = "policy/poddisruptionbudgets"
PODS: Final = "/pods"
# An allowed eviction that did not delete its pod within this time counts no more.
_DISRUPTION_SECONDS: Final = 120


class DisruptionController(Controller):
    """Controller of PodDisruptionBudgets; keys are (namespace, name) of budgets."""

    def observe(self, collection: Collection, change: Change) -> None:
        if collection.storage == BUDGETS:
            if change.new is not None:
                self.add(change.key)
        elif collection.storage == PODS:
            budgets = self.api.store.collections.get(BUDGETS)
            if budgets is not None and budgets.records:
                for key in budgets.keys(change.key[0]):
                    self.add(key)

    def resync(self) -> None:
        budgets = self.api.store.collections.get(BUDGETS)
        for key in list(budgets.records) if budgets is not None else ():
            self.add(key)

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        record = self.current(BUDGETS, key)
        if record is None:
            return
        obj = record.load()
        pods = self._pods(key[0], dig(obj, "spec", "selector"))
        spec, status = mapping(obj.get("spec")), mapping(obj.setdefault("status", {}))
        disrupted, recheck = self._disrupted(mapping(status.get("disruptedPods")), pods)
        healthy = sum(_is_healthy(pod) and metadata(pod)["name"] not in disrupted for pod in pods.values())
        expected, desired = self._expected(key[0], spec, list(pods.values()))
        allowed = max(0, healthy - desired) if expected > 0 else 0
        if disrupted:
            status["disruptedPods"] = disrupted
        else:
            status.pop("disruptedPods", None)
        status["currentHealthy"] = healthy
        status["desiredHealthy"] = desired
        status["expectedPods"] = expected
        status["disruptionsAllowed"] = allowed
        status["observedGeneration"] = metadata(obj).get("generation", 1)
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": metadata(obj).get("generation", 1),
        }
        set_condition(status, condition, self.api.now())
        self.save(self.types()[BUDGETS], record, obj)
        if recheck is not None:
            self.add_later(key, recheck)

    def _pods(self, namespace: str, selector: Any) -> dict[Key, Json]:
        matcher = selector_from_object(selector)
        collection = self.api.store.collections.get(PODS)
        if matcher is None or collection is None:
            return {}
        pods: dict[Key, Json] = {}
        for key in collection.keys(namespace):
            record: Record = collection.records[key]
            if all_hold(matcher, record.labels) and record.fields["status.phase"] not in TERMINAL:
                pods[key] = record.load()
        return pods

    def _disrupted(self, known: Json, pods: dict[Key, Json]) -> tuple[Json, float | None]:
        """Return the evicted pods that are not deleted yet, and the seconds until the first of these entries
        expires."""
        by_name = {metadata(pod)["name"]: pod for pod in pods.values()}
        pending: Json = {}
        recheck: float | None = None
        for name, since in known.items():
            pod, then = by_name.get(name), parse_timestamp(since)
            if pod is None or "deletionTimestamp" in metadata(pod) or then is None:
                continue
            remaining = then + _DISRUPTION_SECONDS - self.api.clock.now()
            if remaining > 0:
                pending[name] = since
                recheck = remaining if recheck is None else min(recheck, remaining)
        return pending, recheck

    def _expected(self, namespace: str, spec: Json, pods: list[Json]) -> tuple[int, int]:
        """Return the expected number of pods of a PodDisruptionBudget, and the number of pods that must stay
        healthy."""
        unavailable = spec.get("maxUnavailable")
        if unavailable is not None:
            scale = self._scale(namespace, pods)
            return scale, max(0, scale - _share(unavailable, scale))
        available = spec.get("minAvailable", 1)
        if isinstance(available, int):
            return len(pods), available
        scale = self._scale(namespace, pods)
        return scale, _share(available, scale)

    def _scale(self, namespace: str, pods: list[Json]) -> int:
        """Return the total replicas of the pods' controllers; a pod without a known controller counts as one."""
        total, seen = 0, set()
        for pod in pods:
            size = None
            for reference in map(mapping, sequence(metadata(pod).get("ownerReferences"))):
                if reference.get("controller") is not True:
                    continue
                uid = text(reference.get("uid"))
                if uid in seen:
                    size = 0
                    break
                size = self._controller_size(namespace, reference)
                if size is not None:
                    seen.add(uid)
            total += 1 if size is None else size
        return total

    def _controller_size(self, namespace: str, reference: Json) -> int | None:
        group = text(reference.get("apiVersion")).rpartition("/")[0]
        type_ = self.api.registry.find_kind(group, text(reference.get("kind")))
        if type_ is None:
            return None
        owner = self.current(type_.storage, (namespace, text(reference.get("name"))))
        if owner is None or owner.uid != reference.get("uid"):
            return None
        spec = mapping(owner.load().get("spec"))
        size = spec.get("replicas", spec.get("parallelism"))
        return size if isinstance(size, int) else None


def _share(value: Any, total: int) -> int:
    """Return the number that an int-or-percent value means for a total; percentages are rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        try:
            return math.ceil(int(value[:-1]) * total / 100)
        except ValueError:
            return 0
    return value if isinstance(value, int) else 0


def _is_healthy(pod: Json) -> bool:
    if "deletionTimestamp" in metadata(pod):
        return False
    return any(
        mapping(item).get("type") == "Ready" and mapping(item).get("status") == "True"
        for item in sequence(dig(pod, "status", "conditions"))
    )
