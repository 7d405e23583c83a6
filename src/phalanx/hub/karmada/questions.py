"""What clusters are asked about a binding: its gang as its template declares it, and which of them may have it."""

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
    """A binding with its gang. `groups` are the clusters that may take it, in the order in which groups are tried;
    `barred` are others of its placement, with what keeps it from them."""

    binding: StoredObject
    gang: AskedGang
    groups: tuple[tuple[str, ...], ...]
    barred: tuple[Candidate, ...]


class BindingRefusedError(Exception):
    """A binding goes nowhere until it, its policy or its template is changed; one that is `quiet` is what its user
    wants."""

    def __init__(self, message: str, quiet: bool = False) -> None:
        super().__init__(message)
        self.quiet = quiet


async def consider(client: KubeClient, binding: StoredObject, clusters: Mapping[str, StoredObject]) -> AskedBinding:
    """With its template as it is now. Raises RefusedError, ApiError, ConnectionLost, and anything at all for a
    template that has another shape than its kind."""
    spec = binding.document.get("spec") or {}
    if why := placement.refusal(spec):
        raise BindingRefusedError(why)
    resource = spec.get("resource")
    kind = template_kind(resource)
    if kind is None:
        raise BindingRefusedError(unknown_kind(resource))
    template = await client.get(kind.resource.path(binding.namespace, str(at(resource, ("name",)))))
    uid = at(resource, ("uid",))
    if uid and uid != at(template, ("metadata", "uid")):
        raise BindingRefusedError("the template has been replaced; Karmada makes another binding", quiet=True)
    if kind is not VOLCANO_JOB and wants_suspension(kind, template):
        raise BindingRefusedError("it is suspended", quiet=True)
    try:
        documents = question(kind, template)
    except TooManyPodsError as error:
        raise BindingRefusedError(str(error)) from error
    if len(documents) < 2:
        raise BindingRefusedError("it declares no pods")
    groups, barred = allowed(spec, clusters)
    name = f"{binding.namespace}/{template['metadata']['name']}"
    return AskedBinding(binding, AskedGang(binding.uid, name, tuple(documents), declared=True), groups, barred)


def allowed(
    spec: Json, clusters: Mapping[str, StoredObject]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Candidate, ...]]:
    """The clusters that may have it, by group, each in its first; and those that its placement has, but for what
    keeps it from them now."""
    groups, barred, seen = list[tuple[str, ...]](), list[Candidate](), set[str]()
    for group in placement.cluster_groups(spec.get("placement")):
        having = [name for name in sorted(clusters) if name not in seen and group.has(clusters[name].document)]
        seen |= set(having)
        obstacles = {name: placement.obstacle(spec, clusters[name].document) for name in having}
        groups.append(tuple(name for name in having if not obstacles[name]))
        barred += [Candidate(name, never=True, message=why) for name, why in obstacles.items() if why]
    return tuple(groups), tuple(barred)


def wish(each: AskedBinding, told: Mapping[str, Mapping[str, Candidate]]) -> Wish:
    """About the first group with a cluster that may start it; who is in a later one is not considered."""
    uid = each.gang.uid
    chosen: tuple[str, ...] = ()
    others: list[Candidate] = []
    for names in each.groups:
        answers = [told[name][uid] for name in names]
        if chosen:
            said = "an earlier group has a cluster for it"
            others += [Candidate(name, never=True, message=said) for name in names]
        elif any(not answer.never for answer in answers):
            chosen = names
        else:
            others += answers
    return Wish(uid, uid, (*map(Candidate, chosen), *others), frozenset(chosen))


def gangs_by_cluster(batch: Sequence[AskedBinding]) -> dict[str, list[AskedGang]]:
    """Return what each cluster is asked about: all gangs that may go there."""
    gangs: dict[str, list[AskedGang]] = {}
    for each in batch:
        for name in (name for group in each.groups for name in group):
            gangs.setdefault(name, []).append(each.gang)
    return gangs
