"""Generated PodGroups: create, update and delete one for each gang that only its pods declare."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import OwnerReference, PodObject
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.gangs.generated_pod_groups import (
    FORMER_GENERATED_FROM_PODS,
    GENERATED_FROM_PODS,
    GROUPS,
    GeneratedPodGroup,
    manifest,
    note_of,
    spec_of,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.own_objects import LABELS
from phalanx.kube.paths import Resource
from phalanx.kube.retry import Backoff
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import ACTIVE, MemberState

log = logging.getLogger(__name__)

# Seconds to wait for more changes: pods of a gang and owners of its object arrive one by one.
_GATHER = 0.5
# Maximum number of owners of an object; the object exists until the last of them is deleted.
_MOST_OWNERS = 64
# Seconds before the next creation after an object was deleted or rejected; the pause doubles.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
_COMES = (*ACTIVE, MemberState.PENDING, MemberState.GATED)

Owner = Mapping[str, Any]
Action = Callable[[], Any]


class _Entry:
    """State of one generated PodGroup's name.

    `tries` counts the created or rejected objects. Before `paused_until` (loop time) no object is created.
    `backoff` is for writes that failed temporarily. `planned` is the timer of the next step.
    """

    __slots__ = ("backoff", "busy", "paused_until", "planned", "tries")

    def __init__(self) -> None:
        self.backoff = Backoff(base=0.5, cap=10.0)
        self.tries = 0
        self.paused_until = 0.0
        self.planned: asyncio.TimerHandle | None = None
        self.busy = False


class GeneratedPodGroups:
    """Controller of generated PodGroups, which the scheduler creates for gangs that only their pods declare.

    The pods' labels are the source; the object follows them until another client writes its spec. The owners are
    the controllers of the members, or members without a controller, so the garbage collector deletes the object
    with them. It is deleted here when its gang has no member left, or another object declares the gang. `kinds`
    returns the served kinds, with whether all objects of each are known. `enabled` returns the policy's setting.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        kinds: Callable[[], Mapping[ServedKind, bool]],
        enabled: Callable[[], bool],
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._intake = intake
        self._declarations = intake.dialects.declarations
        self._kinds = kinds
        self._enabled = enabled
        self._entries: dict[GangKey, _Entry] = {}
        # Uid of the owner by uid of the pod, for members of gangs that only pods declare.
        self._owners: dict[str, str] = {}
        # Owner and number of its members, by uid of the owner.
        self._shared: dict[str, tuple[OwnerReference, int]] = {}
        self._rule: tuple[ServedKind | None, bool] | None = None
        # Gangs without an object because no kind was watched at that time.
        self._without_kind: dict[GangKey, None] = {}
        self._complaints: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        """Return the number of entries that the controller stores."""
        return len(self._entries) + len(self._owners) + len(self._without_kind)

    def pod_seen(self, pod: PodObject) -> None:
        """Record the owner of a gang's member; a member without a controller owns itself."""
        metadata = pod.metadata
        if metadata.uid in self._owners or not self._declarations.may_declare_alone(metadata):
            return
        declaration, controller = self._declarations.declare(pod), controlling_owner(metadata)
        if declaration is None or not declaration.naming.rules.alone:
            return
        owner = OwnerReference("v1", "Pod", metadata.name, metadata.uid) if controller is None else controller
        _, uses = self._shared.get(owner.uid, (owner, 0))
        self._shared[owner.uid] = owner, uses + 1
        self._owners[metadata.uid] = owner.uid

    def pod_gone(self, uid: str) -> None:
        name = self._owners.pop(uid, None)
        if name is None:
            return
        owner, uses = self._shared.pop(name)
        if uses > 1:
            self._shared[name] = owner, uses - 1

    def touch(self, key: GangKey) -> None:
        """Plan a step for a gang after a change of the gang, its members or its PodGroup."""
        self._without_kind.pop(key, None)
        record = self._state.gangs.get(key)
        concerns = record is not None and record.spec is not None and record.spec.rules.alone
        if concerns or self._intake.group_objects.made(key):
            self._plan(key, self._entries.setdefault(key, _Entry()), _GATHER)
        elif key in self._entries:
            entry = self._entries.pop(key)
            if entry.planned is not None:
                entry.planned.cancel()

    def check(self) -> None:
        """Plan a step for every gang when a PodGroup kind has become served or the policy has changed; cheap
        otherwise."""
        rule = self._kind(), self._enabled()
        if rule != self._rule:
            self._rule = rule
            for key in self._state.gangs:
                self.touch(key)
        elif rule[0] is not None:
            for key in list(self._without_kind):
                self.touch(key)

    def _plan(self, key: GangKey, entry: _Entry, pause: float) -> None:
        if entry.planned is None:
            entry.planned = asyncio.get_running_loop().call_later(pause, self._submit, key, entry)

    def _submit(self, key: GangKey, entry: _Entry) -> None:
        entry.planned = None
        if entry.busy:
            self._plan(key, entry, _GATHER)
        elif self._step(key, entry) is not None:
            entry.busy = True
            self._pool.submit(Urgency.EVENT, lambda: self._write(key, entry))

    async def _write(self, key: GangKey, entry: _Entry) -> None:
        try:
            # The step is computed again: the state has possibly changed since the submission.
            step = self._step(key, entry)
            if step is not None:
                await step()
                entry.backoff.reset()
        except (ApiError, ConnectionLost, ConfigError) as error:
            self._failed(key, entry, error)
        finally:
            entry.busy = False

    def _failed(self, key: GangKey, entry: _Entry, error: ApiError | ConnectionLost | ConfigError) -> None:
        status = error.status if isinstance(error, ApiError) else 0
        passing = not 400 <= status < 500 or status == 429
        if not passing:
            self._pause(entry)
        if status in (404, 409):
            # The object is deleted, or another client has created one: a watch event follows. An earlier event is
            # checked again.
            self._plan(key, entry, max(_FIRST_PAUSE, entry.paused_until - asyncio.get_running_loop().time()))
            return
        if isinstance(error, ApiError) and error.namespace_terminating:
            return
        complaint = (key.namespace, str(status))
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.warning("the generated PodGroup of gang %s was not written: %s", key, error)
        if status == 403:
            # Rights and quotas change without an event about the gang.
            self._plan(key, entry, _LONGEST_PAUSE)
        elif passing:
            self._plan(key, entry, entry.backoff.next(error.retry_after if isinstance(error, ApiError) else None))

    def _step(self, key: GangKey, entry: _Entry) -> Action | None:
        """Return the next write of a gang's generated PodGroup; None if it is up to date."""
        objects = self._intake.group_objects.made(key)
        if not self._intake.is_ours(key):
            return None  # another Phalanx manages its own objects
        for generated in objects:
            if generated.adopted:
                return lambda: self._release(generated)
        gang = self._wanted(key)
        current = (
            min(objects, key=lambda generated: GROUPS.index(generated.ref.group), default=None)
            if gang is not None
            else None
        )
        for generated in objects:
            if generated is not current:
                return lambda: self._delete(generated)
        if gang is None:
            return None
        if current is not None:
            patch = self._difference(key, gang, current)
            return (lambda: self._patch(current, patch)) if patch else None
        kind, record = self._kind(), self._state.gangs[key]
        if not any(member.state in _COMES for member in record.members.values()):
            return None
        if key.namespace in self._intake.ending:
            return None  # the API server refuses new objects in a namespace that is being deleted
        if kind is None:
            self._without_kind[key] = None
            return None
        late = entry.paused_until - asyncio.get_running_loop().time()
        if late > 0:
            self._plan(key, entry, late)
            return None
        return lambda: self._create(kind, key, gang, entry)

    def _wanted(self, key: GangKey) -> Gang | None:
        """Return the gang if it should have a generated PodGroup."""
        record = self._state.gangs.get(key)
        gang = record.spec if record is not None and record.members else None
        if gang is None or not self._enabled() or not gang.rules.alone or gang.problem is not None:
            return None
        generated_uids = {generated.ref.uid for generated in self._intake.group_objects.made(key)}
        declared = gang.source is not None and gang.source.uid not in generated_uids
        return None if declared else gang

    def _kind(self) -> ServedKind | None:
        """Return the PodGroup kind for new objects; None until all objects of that kind are known."""
        kinds = self._kinds()
        served = {kind.group: kind for kind in kinds}
        kind = next((served[group] for group in GROUPS if group in served), None)
        return kind if kind is not None and kinds[kind] else None

    def _owners_of(self, key: GangKey) -> list[Owner]:
        """Return the owners of a gang's members without duplicates, the oldest member's first."""
        members = sorted(
            self._state.gangs[key].members.values(), key=lambda record: (record.pod.created, record.pod.name)
        )
        uids = dict.fromkeys(self._owners.get(member.pod.uid, "") for member in members)
        owners = [self._shared[uid][0] for uid in uids if uid]
        return [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            for owner in owners[:_MOST_OWNERS]
        ]

    def _difference(self, key: GangKey, gang: Gang, generated: GeneratedPodGroup) -> dict[str, Any]:
        patch: dict[str, Any] = {}
        spec = spec_of(gang)
        if spec != generated.spec:
            patch = {"spec": dict.fromkeys(generated.spec) | spec, "metadata": {"annotations": note_of(spec)}}
        wanted, known = self._owners_of(key), {owner.get("uid") for owner in generated.owners}
        # One remaining owner keeps the object. An owner that the garbage collector has removed is not added again.
        if any(owner["uid"] not in known for owner in wanted) and len(generated.owners) < _MOST_OWNERS:
            patch.setdefault("metadata", {})["ownerReferences"] = _merged(generated.owners, wanted)
        return patch

    async def _create(self, kind: ServedKind, key: GangKey, gang: Gang, entry: _Entry) -> None:
        path = Resource(kind.group, kind.version, kind.plural, kind.kind).path(key.namespace)
        await self._client.create(path, manifest(kind, key, spec_of(gang), self._owners_of(key), LABELS))
        self._pause(entry)

    def _pause(self, entry: _Entry) -> None:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(entry.tries, 16))
        entry.tries += 1
        entry.paused_until = asyncio.get_running_loop().time() + pause

    async def _patch(self, generated: GeneratedPodGroup, patch: dict[str, Any]) -> None:
        metadata = {**patch.get("metadata", {}), "uid": generated.ref.uid}
        await self._client.patch(_path(generated), {**patch, "metadata": metadata}, PatchType.MERGE)

    async def _release(self, generated: GeneratedPodGroup) -> None:
        """Remove the scheduler's metadata and owners from a PodGroup that another client has adopted."""
        annotations = dict.fromkeys((GENERATED_FROM_PODS, FORMER_GENERATED_FROM_PODS))
        metadata = {"annotations": annotations, "labels": dict.fromkeys(LABELS), "ownerReferences": None}
        await self._patch(generated, {"metadata": metadata})

    async def _delete(self, generated: GeneratedPodGroup) -> None:
        await self._client.delete(_path(generated), uid=generated.ref.uid)


def _path(generated: GeneratedPodGroup) -> str:
    ref = generated.ref
    return Resource(ref.group, ref.version, ref.plural, ref.kind).path(ref.namespace, ref.name)


def _merged(owners: Sequence[Owner], wanted: Sequence[Owner]) -> list[Owner]:
    return list({owner.get("uid"): owner for owner in (*owners, *wanted)}.values())[:_MOST_OWNERS]
