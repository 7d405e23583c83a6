"""Which of the kinds that we know an API server has, and in which version."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.kube.discovery import Discovery
from phalanx.kube.paths import Resource


def served_groups(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """The kinds of group objects that this server has, each in the version that we prefer."""
    return _served(served, [each.kind for each in intake.dialects.groups.values()])


def has_native_groups(served: Discovery, intake: Intake) -> bool:
    """Whether Kubernetes' own groups are served; a version that could not be read may have them."""
    kinds = (kind.group for kind, _ in served_groups(served, intake))
    unread = (name.partition("/")[0] for name in served.degraded)
    return NATIVE in {*kinds, *unread}


def served_accounts(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """The kinds of queues and quotas, likewise."""
    return _served(served, [each.kind for each in intake.dialects.accounts.values()])


def served_owners(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """The kinds of owners that pods have needed so far, likewise."""
    wanted = [kind for kind in intake.owners.kinds if (kind.group, kind.plural) in intake.workloads.wanted]
    return _served(served, wanted)


def served_enricher_kinds(served: Discovery, intake: Intake) -> list[tuple[ServedKind, Resource]]:
    """The kinds that decide about sides of pods, likewise."""
    return _served(served, intake.enrichers.kinds)


def _served(served: Discovery, kinds: Iterable[WantedKind]) -> list[tuple[ServedKind, Resource]]:
    found = []
    for kind in kinds:
        versions = {resource.version: resource for resource in served.find(kind.group, kind.plural)}
        version = next((version for version in kind.versions if version in versions), None)
        if version is not None:
            found.append((kind.served_as(version), versions[version]))
    return found
