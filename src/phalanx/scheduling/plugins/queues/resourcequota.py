"""Plugin `resourcequota`: a gang is admitted only while the ResourceQuotas of its namespace allow its pods."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from phalanx.model.account import ResourceQuota
from phalanx.model.resources import PODS
from phalanx.model.text.quantity import format_quantity
from phalanx.plugin import Arguments, GangRecord, Plugin, View, Vote

_UNLIMITED = 2**62
_POD_COUNTS = (PODS, "count/pods")
_REQUESTS, _LIMITS = "requests.", "limits."


class ResourceQuotaPlugin(Plugin):
    """Permit a gang while `used + inqueue + minResources <= hard` for all resources that a quota names.

    `inqueue` counts admitted groups of the namespace whose pods do not exist yet; Volcano's plugins/resourcequota
    counts only groups admitted in the same cycle. `cpu` is compared with `requests.cpu` and `cpu`, the number of
    members with `pods` and `count/pods`. Limits (`limits.cpu`) are compared where minResources contain them, as
    groups written by Volcano's controller do. Counts of other objects are not compared. Quotas with scopes are
    skipped, as in Volcano: they count only some pods.
    """

    name = "resourcequota"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def admit(self, session: View, gang: GangRecord) -> Vote:
        return Vote.PERMIT if self.max_admissions(session, gang) else Vote.REJECT

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        for quota, name, amount, room in _claims(session, gang):
            if amount > room:
                resource = name.removeprefix(_REQUESTS).removeprefix(_LIMITS)
                wanted, left = format_quantity(amount, resource), format_quantity(max(0, room), resource)
                return (
                    f"it requests {wanted} {name}; ResourceQuota {quota.namespace}/{quota.name} has {left} left",
                    f"free {format_quantity(amount - room, resource)} {name} in namespace {quota.namespace}, "
                    f"or raise the quota",
                )
        return None

    def admission_key(self, gang: GangRecord) -> Hashable:
        return gang.key.namespace, *((gang.spec.min_member, gang.spec.min_limits) if gang.spec is not None else ())

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        rooms = (room // amount for _, _, amount, room in _claims(session, gang))
        return max(0, min(rooms, default=_UNLIMITED))


def _claims(session: View, gang: GangRecord) -> Iterator[tuple[ResourceQuota, str, int, int]]:
    """Yield the claims of a gang on ResourceQuotas: (quota, name in the quota, amount the gang needs, remaining
    room), sorted by quota name."""
    spec, namespace = gang.spec, gang.key.namespace
    quotas = session.state.resource_quotas.get(namespace)
    if spec is None or not spec.min_resources or not quotas:
        return
    wanted = {PODS: spec.min_member, **dict(spec.min_resources), **dict(spec.min_limits)}
    inqueue = session.state.gangs.inqueue.uncreated(namespace)
    for _, quota in sorted(quotas.items()):
        used = dict(quota.used)
        for name, hard in quota.hard if not quota.scoped else ():
            resource = PODS if name in _POD_COUNTS else name.removeprefix(_REQUESTS)
            amount = wanted.get(resource, 0)
            if amount > 0:
                yield quota, name, amount, hard - used.get(name, 0) - inqueue.get(resource, 0)
