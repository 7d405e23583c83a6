"""Dialect of Koordinator, and of its predecessor ACK."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

from phalanx.dialects.api_groups import KOORDINATOR, KOORDINATOR_QUOTA, SIGS, X_K8S
from phalanx.dialects.devices.device_objects import DeviceObjects
from phalanx.dialects.dialect import AccessRule, AccountKind, Dialect
from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.gangs.extras import MIN_AVAILABLE, NAME
from phalanx.dialects.gangs.naming import GangNaming, MinimumKey, Precedence
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.quotas.quota_profiles import PLURAL as PROFILES
from phalanx.dialects.quotas.quota_trees import read_quota_tree
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.gang import GangRules, MatchPolicy

ANNOTATIONS = GangNaming(
    GangRules("gang.scheduling.koordinator.sh", alone=True),
    MatchPolicy.ONCE_SATISFIED,
    Precedence.ANNOTATION,
    annotations=(NAME,),
    minima=(MinimumKey(MIN_AVAILABLE, NAME),),
    objects=(SIGS, X_K8S),
)


def _enrichers(warnings: ObjectWarnings) -> Iterable[PodEnricher]:
    return (DeviceObjects(),)


KOORDINATOR_DIALECT = Dialect(
    "koordinator",
    (ANNOTATIONS,),
    accounts=(
        AccountKind(WantedKind(SIGS, "elasticquotatrees", "ElasticQuotaTree", ("v1beta1",)), read_quota_tree),
        AccountKind(WantedKind(KOORDINATOR_QUOTA, PROFILES, "ElasticQuotaProfile", ("v1alpha1",))),
    ),
    enrichers=_enrichers,
    access=(
        AccessRule(SIGS, ("elasticquotatrees",)),
        AccessRule(KOORDINATOR_QUOTA, (PROFILES,)),
        AccessRule(KOORDINATOR, ("devices", "reservations")),
        AccessRule(KOORDINATOR, ("reservations/status",), ("patch",)),
    ),
    definitions=resources.files("phalanx.dialects").joinpath("crds/koordinator"),
)
