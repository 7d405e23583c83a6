"""Kinds of gang groups, queues and quotas that an API server serves, and their versions."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.kube.discovery import Discovery
from phalanx.kube.paths import Resource


def served_groups(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """Return the served kinds of PodGroups, each in the preferred version."""
    return _served(served, [groups.kind for groups in intake.dialects.groups.values()])


def has_native_groups(served: Discovery, intake: Intake) -> bool:
    """Return whether Kubernetes' own PodGroups are served, or possibly served in a version that could not be
    read."""
    kinds = (kind.group for kind, _ in served_groups(served, intake))
    unread = (name.partition("/")[0] for name in served.degraded)
    return NATIVE in {*kinds, *unread}


def served_accounts(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """Return the served kinds of queues and quotas, each in the preferred version."""
    return _served(served, [accounts.kind for accounts in intake.dialects.accounts.values()])


def served_owners(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """Return the served kinds of pod owners that pods have needed so far, each in the preferred version."""
    wanted = [kind for kind in intake.owners.kinds if (kind.group, kind.plural) in intake.workloads.wanted]
    return _served(served, wanted)


def served_enricher_kinds(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """Return the served kinds whose objects complete pods (claims, volumes, ...), each in the preferred version."""
    return _served(served, intake.enrichers.kinds)


def _served(served: Discovery, kinds: Iterable[WantedKind]) -> list[tuple[ServedKind, Resource]]:
    resources = []
    for kind in kinds:
        versions = {resource.version: resource for resource in served.find(kind.group, kind.plural)}
        version = next((version for version in kind.versions if version in versions), None)
        if version is not None:
            resources.append((kind.served_as(version), versions[version]))
    return resources
