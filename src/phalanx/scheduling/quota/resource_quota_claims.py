"""Claims of a gang's minResources on the ResourceQuotas of its namespace."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import ResourceQuota
from phalanx.model.resources import PODS

_POD_COUNTS = (PODS, "count/pods")
REQUESTS = "requests."


def resource_quota_claims(state: ClusterState, gang: GangRecord) -> Iterator[tuple[ResourceQuota, str, int, int]]:
    """Yield the claims of a gang on ResourceQuotas: (quota, name in the quota, amount the gang needs, remaining
    room), sorted by quota name."""
    spec, namespace = gang.spec, gang.key.namespace
    quotas = state.resource_quotas.get(namespace)
    if spec is None or not spec.min_resources or not quotas:
        return
    wanted = {PODS: spec.min_member, **dict(spec.min_resources), **dict(spec.min_limits)}
    inqueue = state.gangs.inqueue.uncreated(namespace)
    for _, quota in sorted(quotas.items()):
        used = dict(quota.used)
        for name, hard in quota.hard if not quota.scoped else ():
            resource = PODS if name in _POD_COUNTS else name.removeprefix(REQUESTS)
            amount = wanted.get(resource, 0)
            if amount > 0:
                yield quota, name, amount, hard - used.get(name, 0) - inqueue.get(resource, 0)
