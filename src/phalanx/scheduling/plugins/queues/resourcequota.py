"""Plugin `resourcequota`: a gang is admitted only while the ResourceQuotas of its namespace allow its pods."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.model.text.quantity import format_quantity
from phalanx.plugin import Arguments, GangRecord, Plugin, View, Vote
from phalanx.scheduling.quota.resource_quota_claims import REQUESTS, resource_quota_claims

_UNLIMITED = 2**62
_LIMITS = "limits."


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
        for quota, name, amount, room in resource_quota_claims(session.state, gang):
            if amount > room:
                resource = name.removeprefix(REQUESTS).removeprefix(_LIMITS)
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
        rooms = (room // amount for _, _, amount, room in resource_quota_claims(session.state, gang))
        return max(0, min(rooms, default=_UNLIMITED))
