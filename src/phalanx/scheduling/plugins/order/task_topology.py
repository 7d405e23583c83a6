"""Plugin `task-topology` of Volcano: affinity and anti-affinity between the tasks of one group."""

from __future__ import annotations

from phalanx.plugin import Arguments, GangRecord, Plugin, PodRecord, TaskBuckets, View
from phalanx.scheduling.plugins.order.topology_task_buckets import TopologyTaskBuckets


class TaskTopologyPlugin(Plugin):
    """Members of a group with annotations `volcano.sh/task-topology-*` are divided into buckets by these rules.

    Members of a bucket prefer the node that has most of them and room for the remaining ones.
    """

    name = "task-topology"
    arguments = ("task-topology.weight",)

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("task-topology.weight", 1, least=0)

    def task_buckets(self, session: View, gang: GangRecord) -> TaskBuckets | None:
        return self._buckets(session, gang) if self._weight else None

    def pod_order(self, session: View, pod: PodRecord) -> tuple[int, ...]:
        """Return the sort key of a member: the largest bucket first."""
        buckets = self._buckets(session, pod.gang) if pod.gang is not None else None
        return buckets.order(pod) if buckets is not None else (1,)

    def _buckets(self, session: View, gang: GangRecord) -> TopologyTaskBuckets | None:
        spec = gang.spec
        if spec is None or spec.tasks is None:
            return None
        version = session.state.version
        match gang.task_buckets:
            case (known, known_spec, TopologyTaskBuckets() as buckets) if known == version and known_spec is spec:
                return buckets
        buckets = TopologyTaskBuckets(spec.tasks, gang.members.values(), session.state.nodes, self._weight)
        gang.task_buckets = version, spec, buckets
        return buckets
