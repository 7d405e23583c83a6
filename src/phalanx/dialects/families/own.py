"""Dialect of our own annotations (native PodGroups on clusters without the native API), and of our own kinds."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from phalanx.dialects.api_groups import NATIVE, PHALANX
from phalanx.dialects.dialect import AccessRule, Dialect
from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.gangs.declaration import OWN_GROUP, OWN_MIN_COUNT
from phalanx.dialects.gangs.naming import NOT_FOUND, GangNaming, MinimumKey, Precedence
from phalanx.dialects.nodes.maintenance_signals import MaintenanceSignals
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.gang import GangKey, GangRules, MatchPolicy, Problem


def _missing(key: GangKey, place: str, native_served: bool) -> Problem:
    remedy = f"create it, or state its size in the annotation {OWN_MIN_COUNT}"
    return Problem.of(NOT_FOUND, f"waiting for PodGroup {key}", remedy, waits=True)


OWN = GangNaming(
    GangRules("phalanx.dev", by_native_rules=True),
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.OWN,
    annotations=(OWN_GROUP,),
    minima=(MinimumKey(OWN_MIN_COUNT, OWN_GROUP, needs_name=True),),
    objects=(NATIVE,),
    missing=_missing,
)


def _enrichers(warnings: ObjectWarnings) -> Iterable[PodEnricher]:
    return (MaintenanceSignals(),)


OWN_DIALECT = Dialect(
    "phalanx.dev",
    (OWN,),
    enrichers=_enrichers,
    access=(
        AccessRule(PHALANX, ("maintenancewindows", "reservations")),
        AccessRule(PHALANX, ("maintenancewindows/status", "reservations/status"), ("patch",)),
        AccessRule("karpenter.sh", ("nodeclaims",)),
    ),
    definitions=resources.files("phalanx.dialects").joinpath("crds/phalanx"),
)
