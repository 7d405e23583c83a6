"""Our own annotations: Kubernetes' own groups on clusters that do not serve them."""

from __future__ import annotations

from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.dialect import Dialect
from phalanx.dialects.gangs.declaration import OWN_GROUP, OWN_MIN_COUNT
from phalanx.dialects.gangs.naming import GangNaming, MinimumKey, Precedence
from phalanx.model.gang import GangKey, GangRules, MatchPolicy


def _missing(key: GangKey, place: str, native_served: bool) -> str:
    return f"waiting for PodGroup {key}; create it, or state its size in the annotation {OWN_MIN_COUNT}"


OWN = GangNaming(
    GangRules("phalanx.dev", by_native_rules=True),
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.OWN,
    annotations=(OWN_GROUP,),
    minima=(MinimumKey(OWN_MIN_COUNT, OWN_GROUP, needs_name=True),),
    objects=(NATIVE,),
    missing=_missing,
)

OWN_DIALECT = Dialect("phalanx.dev", (OWN,))
