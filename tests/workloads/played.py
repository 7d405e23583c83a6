"""A cluster in which operators create owners and pods, as API objects, and the scheduler's core places them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.model.events import ClusterEvent, GangRemoved, GangUpdated, PodRemoved, PodUpdated
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod
from tests.dialects.objects import container, decode, group, pod_document
from tests.scheduling.scenario import NAMESPACE, Scenario

JOB = ServedKind("batch", "v1", "jobs", "Job")
JOBSET = ServedKind("jobset.x-k8s.io", "v1", "jobsets", "JobSet")
LWS = ServedKind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
RAY_CLUSTER = ServedKind("ray.io", "v1", "rayclusters", "RayCluster")


class Played(Scenario):
    """A played cluster.

    Names are uids too. A pod needs one CPU; `room` creates nodes for that many pods in all.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.intake = Intake(["phalanx"], DialectOptions(**options))

    def room(self, cpus: int) -> Self:
        return self.node("n1", cpu=cpus)

    def owner(self, kind: ServedKind, name: str, *, status: Mapping[str, Any] | None = None, **spec: Any) -> Self:
        """An operator's object was created or changed."""
        annotations, of = spec.pop("annotations", {}), spec.pop("of", "")
        document = group(name, namespace=NAMESPACE, uid=name, status=status, annotations=annotations, **spec)
        document["metadata"]["ownerReferences"] = _controllers(of)
        return self._take(self.intake.owners.updated(kind, document))

    def pod_group(self, kind: ServedKind, name: str, of: str = "", **spec: Any) -> Self:
        """An operator makes a group for its pods; `of` as below. It is admitted already, unless `phase` differs."""
        phase = spec.pop("phase", "Inqueue")
        document = group(name, namespace=NAMESPACE, uid=name, status={"phase": phase}, **spec)
        document["metadata"]["ownerReferences"] = _controllers(of)
        return self._take(self.intake.group(kind, document))

    def no_owner(self, kind: ServedKind, name: str) -> Self:
        return self._take(self.intake.owners.removed(kind, NAMESPACE, name))

    def not_readable(self, kind: ServedKind) -> Self:
        """The API does not serve the kind, or not to us."""
        return self._take(self.intake.owners.readable((kind.group, kind.plural), False))

    def create(self, *names: str, of: str = "", **details: Any) -> Self:
        """Pods appear; `of` is their controller as API/VERSION/KIND/NAME."""
        for name in names:
            document = pod_document(
                name, namespace=NAMESPACE, uid=name, created=self.now, containers=[container(cpu=1)], **details
            )
            document["metadata"]["ownerReferences"] = _controllers(of)
            self._take(self.intake.pod(decode(document)))
        return self

    def alone(self) -> list[str]:
        """The pods that are in no gang."""
        return sorted(uid for uid, record in self.state.pods.items() if record.gang is None)

    def gang_of(self, name: str) -> Gang:
        record = self.state.pods[name].gang
        assert record is not None
        assert record.spec is not None
        return record.spec

    def why_of(self, name: str) -> str:
        """Return the reason of the gang of a waiting pod."""
        verdict = self.why(self.gang_of(name).key.name)
        return verdict.message

    def _take(self, events: Iterable[ClusterEvent]) -> Self:
        return self.observe_together([(_about(event), event) for event in events])


def _controllers(of: str) -> list[dict[str, Any]]:
    version, _, name = of.rpartition("/")
    version, kind = version.rpartition("/")[::2]
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}] if of else []


def _about(event: ClusterEvent) -> str:
    match event:
        case PodUpdated(Pod(uid=uid)) | PodRemoved(uid):
            return f"pod {uid}"
        case GangUpdated(Gang(key=key)) | GangRemoved(key):
            return f"gang {key.name}"
    return repr(event)
