"""Lookup of the gang that `phalanx what-if --gang` names in a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.model.events import ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.gang_names import AmbiguousGangError, GangNameFacts, facts_of, find_gangs
from phalanx.model.pod import Pod
from phalanx.reports.owners import OwnerTree
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import OptionError


def refuse_running(text: str, key: GangKey, events: Sequence[ClusterEvent]) -> None:
    """Raise InputError for a named gang without waiting pods, if the question changes nothing about it."""
    pods = [pod for pod in _pods(events) if (pod.namespace, pod.gang) == (key.namespace, key.name)]
    if not any(map(_waits, pods)):
        raise OptionError(
            "gang", text, f": the gang is not waiting: all of its {len(pods)} pods are bound or finished"
        )


def waiting_gang(
    text: str, namespace: str, events: Sequence[ClusterEvent], entries: Sequence[FileObject]
) -> GangKey:
    """Return the gang that a user names; of several gangs of one job, the first waiting one. Raises InputError."""
    pods = _pods(events)
    facts_by_gang = {
        GangKey(pod.namespace, pod.gang): facts_of(GangKey(pod.namespace, pod.gang), None)
        for pod in pods
        if pod.gang
    }
    gangs = {
        event.gang.key: facts_of(event.gang.key, event.gang) for event in events if isinstance(event, GangUpdated)
    }
    facts = {**facts_by_gang, **gangs}
    waiting = {GangKey(pod.namespace, pod.gang) for pod in pods if _waits(pod)}
    # Names of an owner's parts contain slashes, so the first word is a namespace only sometimes.
    space, slash, name = text.partition("/")
    meant = ((space, name), (namespace, text)) if slash else ((namespace, text),)
    try:
        for where, what in meant:
            matches = find_gangs(facts, where, what)
            with_pods = [key for key in matches if key in facts_by_gang]
            with_pods = with_pods or _gangs_of_job(where, what, events, entries, facts_by_gang)
            if with_pods:
                return next((key for key in with_pods if key in waiting), with_pods[0])
            if matches:
                raise OptionError(
                    "gang",
                    text,
                    ": the gang has no pods yet (Volcano creates them at admission), so their requests are "
                    "unknown; use the file of the job with -f",
                )
    except AmbiguousGangError as error:
        raise OptionError("gang", text, f": {error}") from error
    raise OptionError("gang", text, ": unknown gang; use NAMESPACE/NAME as in `phalanx jobs`")


def _pods(events: Sequence[ClusterEvent]) -> list[Pod]:
    """Return the last version of each pod among the events: its owner can change the pod's decoded form later."""
    return list({event.pod.uid: event.pod for event in events if isinstance(event, PodUpdated)}.values())


def _waits(pod: Pod) -> bool:
    return not (pod.node or pod.finished)


def _gangs_of_job(
    namespace: str,
    name: str,
    events: Sequence[ClusterEvent],
    entries: Sequence[FileObject],
    facts_by_gang: Mapping[GangKey, GangNameFacts],
) -> list[GangKey]:
    """Return the gangs of a named job whose operator gives the PodGroup another name."""
    tree = OwnerTree(namespace)
    for entry in entries:
        if entry.document["metadata"].get("namespace") == namespace:
            tree.add(entry.document)
    below, gangs = tree.below(name), set[GangKey]()
    for event in events if below else ():
        if isinstance(event, PodUpdated) and event.pod.uid in below and event.pod.gang:
            gangs.add(GangKey(event.pod.namespace, event.pod.gang))
        elif isinstance(event, GangUpdated) and event.gang.source and event.gang.source.uid in below:
            gangs.add(event.gang.key)
    return [key for key in facts_by_gang if key in gangs]
