"""Forecasts for bindings: the gang that a template declares, and the clusters that are allowed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from phalanx.hub.choice.assignment import Candidate, Wish
from phalanx.hub.choice.estimates import AskedGang
from phalanx.hub.jobs.copies import TooManyPodsError
from phalanx.hub.jobs.kinds import at, wants_suspension
from phalanx.hub.karmada import placement
from phalanx.hub.karmada.templates import VOLCANO_JOB, question, template_kind, unknown_kind
from phalanx.hub.objects import Json, StoredObject
from phalanx.kube.client import KubeClient


class AskedBinding(msgspec.Struct, frozen=True):
    """Binding with its gang and the clusters that are allowed for it.

    `groups` are the allowed clusters in the order in which groups are tried. `barred` are further clusters of its
    placement, with the obstacle.
    """

    binding: StoredObject
    gang: AskedGang
    groups: tuple[tuple[str, ...], ...]
    barred: tuple[Candidate, ...]


class BindingRefusedError(Exception):
    """Refusal of a binding until the binding, its policy or its template changes; a `quiet` one is intended by the
    user."""

    def __init__(self, message: str, quiet: bool = False) -> None:
        super().__init__(message)
        self.quiet = quiet


async def consider(client: KubeClient, binding: StoredObject, clusters: Mapping[str, StoredObject]) -> AskedBinding:
    """Read a binding's current template. Return the binding with its gang and allowed clusters.

    Raises BindingRefusedError, ApiError, ConnectionLost, and any exception for a malformed template.
    """
    spec = binding.document.get("spec") or {}
    if problem := placement.refusal(spec):
        raise BindingRefusedError(problem)
    resource = spec.get("resource")
    kind = template_kind(resource)
    if kind is None:
        raise BindingRefusedError(unknown_kind(resource))
    template = await client.get(kind.resource.path(binding.namespace, str(at(resource, ("name",)))))
    uid = at(resource, ("uid",))
    if uid and uid != at(template, ("metadata", "uid")):
        raise BindingRefusedError("the template has been replaced; Karmada creates another binding", quiet=True)
    if kind is not VOLCANO_JOB and wants_suspension(kind, template):
        raise BindingRefusedError("it is suspended", quiet=True)
    try:
        documents = question(kind, template)
    except TooManyPodsError as error:
        raise BindingRefusedError(str(error)) from error
    if len(documents) < 2:
        raise BindingRefusedError("the template declares no pods")
    groups, barred = allowed(spec, clusters)
    name = f"{binding.namespace}/{template['metadata']['name']}"
    return AskedBinding(binding, AskedGang(binding.uid, name, tuple(documents), declared=True), groups, barred)


def allowed(
    spec: Json, clusters: Mapping[str, StoredObject]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Candidate, ...]]:
    """Return the allowed clusters of a binding by group, each in its first group only, and the clusters with an
    obstacle."""
    groups, barred, seen = list[tuple[str, ...]](), list[Candidate](), set[str]()
    for group in placement.cluster_groups(spec.get("placement")):
        members = [name for name in sorted(clusters) if name not in seen and group.has(clusters[name].document)]
        seen |= set(members)
        obstacles = {name: placement.obstacle(spec, clusters[name].document) for name in members}
        groups.append(tuple(name for name in members if not obstacles[name]))
        barred += [
            Candidate(name, never=True, message=obstacle) for name, obstacle in obstacles.items() if obstacle
        ]
    return tuple(groups), tuple(barred)


def wish(each: AskedBinding, answers_by_cluster: Mapping[str, Mapping[str, Candidate]]) -> Wish:
    """Return the candidates of the first cluster group with a cluster that starts the gang; later groups are
    skipped."""
    uid = each.gang.uid
    chosen: tuple[str, ...] = ()
    other_candidates: list[Candidate] = []
    for names in each.groups:
        answers = [answers_by_cluster[name][uid] for name in names]
        if chosen:
            message = "an earlier group has a suitable cluster"
            other_candidates += [Candidate(name, never=True, message=message) for name in names]
        elif any(not answer.never for answer in answers):
            chosen = names
        else:
            other_candidates += answers
    return Wish(uid, uid, (*map(Candidate, chosen), *other_candidates), frozenset(chosen))


def gangs_by_cluster(batch: Sequence[AskedBinding]) -> dict[str, list[AskedGang]]:
    """Return the gangs for each cluster's forecast: all gangs that are allowed there."""
    gangs: dict[str, list[AskedGang]] = {}
    for asked in batch:
        for name in (name for group in asked.groups for name in group):
            gangs.setdefault(name, []).append(asked.gang)
    return gangs
