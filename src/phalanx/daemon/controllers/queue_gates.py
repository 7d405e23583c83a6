"""Volcano's queue-allocation-gate: a gated pod waits for its queue only; the gate is removed once the queue has
quota.

Until then no autoscaler adds nodes for a pod that its queue cannot admit. Source: Volcano 1.15, the scheduling
gates of queue admission. Its webhook writes the gate if the annotation requests it; without the webhook users write
both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from phalanx.cluster.accounts import AccountRecord, add_amounts
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import PodObject
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.model.pod import Pod
from phalanx.scheduling.quota.limits import AccountLimit
from phalanx.scheduling.session.session import Session

# Seconds until a rejected write is retried.
_PAUSE = 30.0

log = logging.getLogger(__name__)

GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""Name of the gate, and of the annotation that requests it."""


class QueueGates:
    """Pods with the queue gate's annotation, by uid: gated ones without another gate, and released ones without a
    node.

    The requests of released pods are counted, so that no more pods are released than the queue admits. A gate
    without the annotation belongs to another controller. Nothing is stored: gated and released pods are visible in
    the API. `look` returns the cluster as plugins see it now.
    """

    def __init__(
        self, client: KubeClient, pool: WritePool, state: ClusterState, look: Callable[[], Session]
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._look = look
        # Version in which each pod was last seen with the gate.
        self._versions: dict[str, str] = {}
        self._gated: set[str] = set()
        self._released: set[str] = set()
        self._seen = -1

    def pod_seen(self, pod: PodObject) -> None:
        metadata, spec = pod.metadata, pod.spec
        uid = metadata.uid
        if GATE not in metadata.annotations:
            if uid in self._versions or uid in self._released:
                self.pod_gone(uid)
            return
        gates = [gate.name for gate in spec.scheduling_gates]
        ours = spec.scheduler_name in self._state.schedulers and not spec.node_name
        if not ours or metadata.annotations.get(GATE) != "true" or gates not in ([], [GATE]):
            self.pod_gone(uid)
        elif not gates:
            self.pod_gone(uid)
            self._released.add(uid)
        else:
            self._versions[uid] = metadata.resource_version
            if uid not in self._released:
                self._gated.add(uid)
                self._seen = -1

    def pod_gone(self, uid: str) -> None:
        self._versions.pop(uid, None)
        self._gated.discard(uid)
        self._released.discard(uid)

    def check(self) -> None:
        """Remove the gates of pods that fit the quota of their queues, by priority, then the oldest first."""
        if not self._gated or self._seen == self._state.version:
            return
        self._seen = self._state.version
        session = self._look()
        counted: dict[AccountRecord, dict[str, int]] = {}
        for record in self._records(self._released):
            _count(counted, record)
        for record in sorted(self._records(self._gated), key=_order):
            if _has_room(session, record, counted):
                _count(counted, record)
                self._lift(record)

    def _records(self, uids: Iterable[str]) -> list[PodRecord]:
        records = (self._state.pods.get(uid) for uid in sorted(uids))
        return [record for record in records if record is not None and record.charge_path is not None]

    def _lift(self, record: PodRecord) -> None:
        self._gated.discard(record.pod.uid)
        self._released.add(record.pod.uid)
        self._pool.submit(Urgency.STATUS, lambda: self._write(record.pod))

    async def _write(self, pod: Pod) -> float | None:
        """Remove the queue gate of a pod; return the seconds until a retry, or None if no write is left."""
        version = self._versions.get(pod.uid)
        if version is None:
            return None
        # The patch applies to the seen version only: it must not remove a gate that another controller has added
        # since.
        patch = {"metadata": {"uid": pod.uid, "resourceVersion": version}, "spec": {"schedulingGates": []}}
        try:
            await self._client.patch(PODS.path(pod.namespace, pod.name), patch, PatchType.MERGE)
        except (ApiError, ConnectionLost, ConfigError) as error:
            if isinstance(error, ApiError) and error.status == 404:
                return None
            if isinstance(error, ApiError) and error.status == 409:
                return 0.1  # the watch shows the newer version
            log.warning("the gate %s of pod %s/%s was not removed: %s", GATE, pod.namespace, pod.name, error)
            return _PAUSE
        return None


def _order(record: PodRecord) -> tuple[int, int, str, str]:
    pod = record.pod
    return -pod.priority, pod.created, pod.namespace, pod.name


def _count(counted: dict[AccountRecord, dict[str, int]], record: PodRecord) -> None:
    assert record.charge_path is not None
    for account in record.charge_path.path:
        add_amounts(counted.setdefault(account, {}), record.footprint.amounts, 1)


def _has_room(session: Session, record: PodRecord, counted: Mapping[AccountRecord, Mapping[str, int]]) -> bool:
    assert record.charge_path is not None
    if session.blocked(record) is not None:
        return False
    nodes_come = session.plugin_runtime.policy.requests_nodes
    for account_limit in session.quota_check.account_limits(record.charge_path):
        wanted = dict(counted.get(account_limit.account, {}))
        add_amounts(wanted, record.footprint.amounts, 1)
        requested = {name: amount for name, amount in wanted.items() if name in record.footprint.amounts}
        if nodes_come:  # new nodes raise some limits, and an autoscaler ignores gated pods
            requested = {name: need for name, need in requested.items() if not _grows(account_limit, name)}
        if not account_limit.room(requested):
            return False
    return True


def _grows(account_limit: AccountLimit, name: str) -> bool:
    return name in account_limit.limit.limits and account_limit.grows_with_nodes(name)
