"""`task-topology`: tasks of one group that belong together, or apart (Volcano's plugin of that name)."""

from __future__ import annotations

from phalanx.plugin import Arguments, GangRecord, Plugin, PodRecord, TaskBuckets, View
from phalanx.scheduling.plugins.order.topology_task_buckets import TopologyTaskBuckets


class TaskTopologyPlugin(Plugin):
    """Members of a group with the annotations `volcano.sh/task-topology-*` are parted into buckets by what its
    tasks say of each other; a bucket's members prefer the node that has most of them, and that has room for the
    rest."""

    name = "task-topology"
    arguments = ("task-topology.weight",)

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("task-topology.weight", 1, least=0)

    def task_buckets(self, session: View, gang: GangRecord) -> TaskBuckets | None:
        return self._buckets(session, gang) if self._weight else None

    def pod_order(self, session: View, pod: PodRecord) -> tuple[int, ...]:
        """The largest bucket first."""
        buckets = self._buckets(session, pod.gang) if pod.gang is not None else None
        return buckets.order(pod) if buckets is not None else (1,)

    def _buckets(self, session: View, gang: GangRecord) -> TopologyTaskBuckets | None:
        spec = gang.spec
        if spec is None or spec.tasks is None:
            return None
        version = session.state.version
        match gang.task_buckets:
            case (known, stated, TopologyTaskBuckets() as found) if known == version and stated is spec:
                return found
        found = TopologyTaskBuckets(spec.tasks, gang.members.values(), session.state.nodes, self._weight)
        gang.task_buckets = version, spec, found
        return found
