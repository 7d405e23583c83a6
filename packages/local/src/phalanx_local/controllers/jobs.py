"""Jobs: pods run until enough of them have succeeded.

The tracking finalizer of Kubernetes ensures that each finished pod is counted once: it blocks the deletion of a
pod until the job's status contains its end. A deleted pod is therefore not replaced by mistake.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from phalanx_local.clock import parse_timestamp
from phalanx_local.controllers.pod_owner import PODS, PodOwner, is_active, is_ready, number
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Change, Key, Record
from phalanx_local.storage.store import Collection
from phalanx_local.strategies.pods import TERMINAL

TRACKING: Final = "batch.kubernetes.io/job-tracking"
MANAGED_BY: Final = "kubernetes.io/job-controller"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_TRACKED: Final = f'"{TRACKING}"'.encode()
_INITIAL_BACKOFF: Final = 10.0
_MAX_BACKOFF: Final = 600.0


class _Orphan(NamedTuple):
    """Key of a pod with the tracking finalizer whose Job is deleted or does not own the pod any more."""

    key: Key


class JobController(PodOwner):
    """Controller of batch/v1 Jobs: parallelism, completions, Indexed mode, backoffLimit, deadline, suspend, TTL."""

    storage = "batch/jobs"

    def observe(self, collection: Collection, change: Change) -> None:
        super().observe(collection, change)
        if collection.storage == self.storage:
            if change.new is None and change.old is not None:
                for storage, key in self.api.store.by_owner.get(change.old.uid, ()):
                    if storage == PODS:
                        self.add(_Orphan(key))
        elif collection.storage == PODS and change.new is not None and self._is_orphan(change.new):
            self.add(_Orphan(change.new.key))

    def resync(self) -> None:
        super().resync()
        pods = self.api.store.collections.get(PODS)
        for record in list(pods.records.values()) if pods is not None else ():
            if self._is_orphan(record):
                self.add(_Orphan(record.key))

    def reconcile(self, key: Hashable) -> None:
        if isinstance(key, _Orphan):
            pod = self.current(PODS, key.key)
            if pod is not None and self._is_orphan(pod):
                self._release(pod)
            return
        assert isinstance(key, tuple)
        record = self.current(self.storage, key)
        if record is not None and record.terminating:
            # A terminating job counts no pods any more, so it releases all of them.
            self._release_all(record)
        else:
            super().reconcile(key)

    def _is_orphan(self, pod: Record) -> bool:
        """Return whether a pod has the tracking finalizer although none of its owners is a Job; the pod is not
        decoded."""
        if _TRACKED not in pod.body:
            return False
        return not any(self.api.store.by_uid.get(uid, ("",))[0] == self.storage for uid in pod.owners)

    def sync(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        spec, status = mapping(obj.get("spec")), mapping(obj.setdefault("status", {}))
        if spec.get("managedBy") not in (None, MANAGED_BY):
            return  # another controller manages this job: no pods, no status
        if _finished(status):
            self._release_all(record)
            self._expire(spec, status, record)
            return
        pods = self.dependents(record)
        ended = self._count_ended(spec, status, pods)
        active = [pod for pod in pods if is_active(pod)]
        verdict = self._end_if_due(record, spec, status, active)
        if verdict:
            for pod in active:
                self.delete(PODS, pod)
            active = []
        elif spec.get("suspend") is True:
            self._suspend(status, active)
            active = []
        else:
            self._resume(status)
            self._expect_deadline(record, spec, status)
            active = self._adjust(type_, record, spec, status, active)
        _set_count(status, "active", len(active))
        _set_count(status, "ready", sum(map(is_ready, active)), keep=True)
        _set_count(status, "terminating", sum(pod.terminating for pod in pods), keep=True)
        status["uncountedTerminatedPods"] = {}
        self.put_status(type_, record.key, status)
        # The status is stored; the counted pods can be deleted now.
        for pod in ended:
            self._release(pod)

    def _count_ended(self, spec: Json, status: Json, pods: list[Record]) -> list[Record]:
        """Add pods that ended since the last reconciliation to the Job's status, and return these pods."""
        ended = []
        for pod in pods:
            obj = pod.load()
            if TRACKING not in sequence(metadata(obj).get("finalizers")):
                continue
            phase = pod.fields["status.phase"]
            if phase not in TERMINAL and not pod.terminating:
                continue
            ended.append(pod)
            if phase == "Succeeded":
                if spec.get("completionMode") == "Indexed":
                    _complete_index(status, pod)
                else:
                    _set_count(status, "succeeded", number(status.get("succeeded"), 0) + 1)
            else:
                _set_count(status, "failed", number(status.get("failed"), 0) + 1)
        return ended

    def _release_all(self, job: Record) -> None:
        for pod in self.dependents(job):
            if _TRACKED in pod.body:
                self._release(pod)

    def _release(self, pod: Record) -> None:
        current = self.current(PODS, pod.key)
        if current is None or current.uid != pod.uid:
            return
        obj = current.load()
        meta = metadata(obj)
        remaining = [item for item in sequence(meta.get("finalizers")) if item != TRACKING]
        if remaining:
            meta["finalizers"] = remaining
        else:
            meta.pop("finalizers", None)
        self.save(self.types()[PODS], current, obj)

    def _end_if_due(self, record: Record, spec: Json, status: Json, active: list[Record]) -> bool:
        """Record in the Job's status that the Job has succeeded or failed, if so. Return whether it has ended."""
        now = self.api.now()
        failed, succeeded = number(status.get("failed"), 0), number(status.get("succeeded"), 0)
        completions = spec.get("completions")
        deadline = spec.get("activeDeadlineSeconds")
        start = parse_timestamp(status.get("startTime"))
        if failed > number(spec.get("backoffLimit"), 6):
            _fail(status, "BackoffLimitExceeded", "Job has reached the specified backoff limit", now)
        elif isinstance(deadline, int) and start is not None and self.api.clock.now() >= start + deadline:
            _fail(status, "DeadlineExceeded", "Job was active longer than specified deadline", now)
        elif isinstance(completions, int):
            if succeeded < completions:
                return False
            _complete(status, now)
        else:
            if not succeeded or active:
                return False
            _complete(status, now)
        return True

    def _stop(self, pod: Record) -> None:
        """Delete a pod of a Job that must not count as failed: the tracking finalizer is removed first."""
        self._release(pod)
        current = self.current(PODS, pod.key)
        if current is not None and current.uid == pod.uid:
            self.delete(PODS, current)

    def _suspend(self, status: Json, active: list[Record]) -> None:
        for pod in active:
            self._stop(pod)
        status.pop("startTime", None)
        condition = {
            "type": "Suspended",
            "status": "True",
            "reason": "JobSuspended",
            "message": "Job suspended",
        }
        set_condition(status, condition, self.api.now())

    def _resume(self, status: Json) -> None:
        status.setdefault("startTime", self.api.now())
        if any(mapping(item).get("type") == "Suspended" for item in sequence(status.get("conditions"))):
            condition = {
                "type": "Suspended",
                "status": "False",
                "reason": "JobResumed",
                "message": "Job resumed",
            }
            set_condition(status, condition, self.api.now())

    def _expect_deadline(self, record: Record, spec: Json, status: Json) -> None:
        deadline, start = spec.get("activeDeadlineSeconds"), parse_timestamp(status.get("startTime"))
        if isinstance(deadline, int) and start is not None:
            self.add_later(record.key, max(0.0, start + deadline - self.api.clock.now()) + 0.001)

    def _adjust(
        self, type_: ResourceType, record: Record, spec: Json, status: Json, active: list[Record]
    ) -> list[Record]:
        """Create the missing pods of a Job and delete its surplus pods; return the active pods after that."""
        parallelism = number(spec.get("parallelism"), 1)
        completions, succeeded = spec.get("completions"), number(status.get("succeeded"), 0)
        if isinstance(completions, int):
            wanted = min(parallelism, completions - succeeded)
        else:
            wanted = parallelism if not succeeded else len(active)
        for pod in active[wanted:]:
            self._stop(pod)
        active = active[:wanted]
        if len(active) < wanted and not self._backs_off(record, status):
            indexed = spec.get("completionMode") == "Indexed"
            indexes = _free_indexes(status, active, completions) if indexed else []
            for slot in range(wanted - len(active)):
                body = self.make_pod(type_, record, mapping(spec.get("template")))
                metadata(body)["finalizers"] = [TRACKING]
                if indexed:
                    _put_index(body, record.name, indexes[slot])
                self.create_pod(record.namespace, body)
        return [pod for pod in self.dependents(record) if is_active(pod)]

    def _backs_off(self, record: Record, status: Json) -> bool:
        """Return whether the Job's back-off since its last failed pod has not passed: 10 s, doubled, at most ten
        minutes."""
        failed = number(status.get("failed"), 0)
        last = max(
            (
                parse_timestamp(_ended_at(pod.load())) or 0.0
                for pod in self.dependents(record)
                if pod.fields["status.phase"] == "Failed"
            ),
            default=0.0,
        )
        if not failed or not last:
            return False
        wait = min(_INITIAL_BACKOFF * 2.0 ** (failed - 1), _MAX_BACKOFF)
        left = last + wait - self.api.clock.now()
        if left <= 0:
            return False
        self.add_later(record.key, left)
        return True

    def _expire(self, spec: Json, status: Json, record: Record) -> None:
        """Delete a finished Job when its ttlSecondsAfterFinished has passed."""
        ttl = spec.get("ttlSecondsAfterFinished")
        if not isinstance(ttl, int):
            return
        ends = [
            parse_timestamp(mapping(item).get("lastTransitionTime"))
            for item in sequence(status.get("conditions"))
            if mapping(item).get("type") in ("Complete", "Failed")
        ]
        end = next((item for item in ends if item is not None), None)
        if end is None:
            return
        left = end + ttl - self.api.clock.now()
        if left > 0:
            self.add_later(record.key, left)
        else:
            self.delete(self.storage, record)


def _finished(status: Json) -> bool:
    return any(
        mapping(item).get("type") in ("Complete", "Failed") and mapping(item).get("status") == "True"
        for item in sequence(status.get("conditions"))
    )


def _set_count(status: Json, field: str, value: int, *, keep: bool = False) -> None:
    if value or keep:
        status[field] = value
    else:
        status.pop(field, None)


def _fail(status: Json, reason: str, message: str, now: str) -> None:
    for type_ in ("FailureTarget", "Failed"):
        set_condition(status, {"type": type_, "status": "True", "reason": reason, "message": message}, now)


def _complete(status: Json, now: str) -> None:
    message = "Reached expected number of succeeded pods"
    for type_ in ("SuccessCriteriaMet", "Complete"):
        condition = {"type": type_, "status": "True", "reason": "CompletionsReached", "message": message}
        set_condition(status, condition, now)
    status["completionTime"] = now


def _ended_at(pod: Json) -> object:
    """Return the time at which a pod's last container ended, else the pod's creation time."""
    ends = [
        text(mapping(mapping(mapping(item).get("state")).get("terminated")).get("finishedAt"))
        for item in sequence(mapping(pod.get("status")).get("containerStatuses"))
    ]
    return max(ends, default="") or metadata(pod).get("creationTimestamp")


def _index_of(pod: Record) -> int:
    value = text(mapping(metadata(pod.load()).get("annotations")).get(INDEX))
    return int(value) if value.isdigit() else -1


def _complete_index(status: Json, pod: Record) -> None:
    done = _parse_indexes(text(status.get("completedIndexes")))
    done.add(_index_of(pod))
    status["completedIndexes"] = _format_indexes(done)
    _set_count(status, "succeeded", len(done))


def _free_indexes(status: Json, active: list[Record], completions: object) -> list[int]:
    taken = _parse_indexes(text(status.get("completedIndexes"))) | {_index_of(pod) for pod in active}
    return [index for index in range(number(completions, 0)) if index not in taken]


def _parse_indexes(source: str) -> set[int]:
    """Return the completion indexes of a text such as `1,3-5`."""
    indexes: set[int] = set()
    for part in source.split(",") if source else ():
        low, _, high = part.partition("-")
        indexes.update(range(int(low), int(high or low) + 1))
    return indexes


def _format_indexes(indexes: set[int]) -> str:
    """Format completion indexes as in Kubernetes: three or more consecutive indexes become a range, such as
    `3-5`."""
    parts: list[str] = []
    ordered = sorted(indexes)
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        if end - at >= 2:
            parts.append(f"{ordered[at]}-{ordered[end]}")
        else:
            parts.extend(str(item) for item in ordered[at : end + 1])
        at = end + 1
    return ",".join(parts)


def _put_index(body: Json, job: str, index: int) -> None:
    """Add the completion index of an Indexed Job to its pod: annotation, label, host name and environment."""
    meta, spec = metadata(body), mapping(body.get("spec"))
    meta["generateName"] = f"{job}-{index}-"
    meta.setdefault("annotations", {})[INDEX] = str(index)
    meta.setdefault("labels", {})[INDEX] = str(index)
    spec.setdefault("hostname", f"{job}-{index}")
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in sequence(spec.get("containers")) + sequence(spec.get("initContainers")):
        environment = mapping(container).setdefault("env", [])
        if not any(mapping(item).get("name") == "JOB_COMPLETION_INDEX" for item in environment):
            environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
