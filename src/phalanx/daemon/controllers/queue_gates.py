"""Volcano's queue-allocation-gate: a gated pod waits for its queue alone, and is let go once the queue has room.

So long nobody adds nodes for a pod that its queue would not take. Source: Volcano 1.15, the scheduling gates of
queue admission (its webhook writes the gate where the annotation asks for it; whoever has no webhook writes both).
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
from phalanx.scheduling.session.session import Session

# Until a write that was refused is tried again (seconds).
_PAUSE = 30.0

log = logging.getLogger(__name__)

GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The name of the gate, and of the annotation that asks for it."""


class QueueGates:
    """Pods that have the annotation, by uid: those whose only gate is left, and those that were let go and wait for
    a node. What the latter ask for is kept for them, so that no more are let go than the queue takes.

    A gate without the annotation is somebody else's to lift. Nothing is kept beyond a restart: what is gated and
    what was let go can be seen on the pods. `look` gives the cluster as plugins see it now.
    """

    def __init__(
        self, client: KubeClient, pool: WritePool, state: ClusterState, look: Callable[[], Session]
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._look = look
        # The version in which each was seen with the gate.
        self._versions: dict[str, str] = {}
        self._gated: set[str] = set()
        self._let_go: set[str] = set()
        self._seen = -1

    def pod_seen(self, pod: PodObject) -> None:
        metadata, spec = pod.metadata, pod.spec
        uid = metadata.uid
        if GATE not in metadata.annotations:
            if uid in self._versions or uid in self._let_go:
                self.pod_gone(uid)
            return
        gates = [gate.name for gate in spec.scheduling_gates]
        ours = spec.scheduler_name in self._state.schedulers and not spec.node_name
        if not ours or metadata.annotations.get(GATE) != "true" or gates not in ([], [GATE]):
            self.pod_gone(uid)
        elif not gates:
            self.pod_gone(uid)
            self._let_go.add(uid)
        else:
            self._versions[uid] = metadata.resource_version
            if uid not in self._let_go:
                self._gated.add(uid)
                self._seen = -1

    def pod_gone(self, uid: str) -> None:
        self._versions.pop(uid, None)
        self._gated.discard(uid)
        self._let_go.discard(uid)

    def check(self) -> None:
        """Lets go whom the queues have room for, the most important and then the oldest first."""
        if not self._gated or self._seen == self._state.version:
            return
        self._seen = self._state.version
        session = self._look()
        kept: dict[AccountRecord, dict[str, int]] = {}
        for record in self._records(self._let_go):
            _keep(kept, record)
        for record in sorted(self._records(self._gated), key=_order):
            if _has_room(session, record, kept):
                _keep(kept, record)
                self._lift(record)

    def _records(self, uids: Iterable[str]) -> list[PodRecord]:
        found = (self._state.pods.get(uid) for uid in sorted(uids))
        return [record for record in found if record is not None and record.charge_path is not None]

    def _lift(self, record: PodRecord) -> None:
        self._gated.discard(record.pod.uid)
        self._let_go.add(record.pod.uid)
        self._pool.submit(Urgency.STATUS, lambda: self._write(record.pod))

    async def _write(self, pod: Pod) -> float | None:
        """The seconds until the next try, None where there is nothing more to do."""
        version = self._versions.get(pod.uid)
        if version is None:
            return None
        # Of the version that was seen, or somebody else's gate that came meanwhile would go, too.
        patch = {"metadata": {"uid": pod.uid, "resourceVersion": version}, "spec": {"schedulingGates": []}}
        try:
            await self._client.patch(PODS.path(pod.namespace, pod.name), patch, PatchType.MERGE)
        except (ApiError, ConnectionLost, ConfigError) as error:
            if isinstance(error, ApiError) and error.status == 404:
                return None
            if isinstance(error, ApiError) and error.status == 409:
                return 0.1  # the watch shows the newer version
            log.warning("the gate %s of pod %s/%s was not lifted: %s", GATE, pod.namespace, pod.name, error)
            return _PAUSE
        return None


def _order(record: PodRecord) -> tuple[int, int, str, str]:
    pod = record.pod
    return -pod.priority, pod.created, pod.namespace, pod.name


def _keep(kept: dict[AccountRecord, dict[str, int]], record: PodRecord) -> None:
    assert record.charge_path is not None
    for account in record.charge_path.path:
        add_amounts(kept.setdefault(account, {}), record.footprint.amounts, 1)


def _has_room(session: Session, record: PodRecord, kept: Mapping[AccountRecord, Mapping[str, int]]) -> bool:
    assert record.charge_path is not None
    if session.blocked(record) is not None:
        return False
    for account_limit in session.quota_check.account_limits(record.charge_path):
        wanted = dict(kept.get(account_limit.account, {}))
        add_amounts(wanted, record.footprint.amounts, 1)
        asked = {name: amount for name, amount in wanted.items() if name in record.footprint.amounts}
        if not account_limit.room(asked):
            return False
    return True
