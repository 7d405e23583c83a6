"""Which gang is asked about by `phalanx what-if --gang`, among what a capture holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.model.events import ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.gang_names import AmbiguousGangError, GangNameFacts, facts_of, find_gangs
from phalanx.model.pod import Pod
from phalanx.reports.owners import OwnerTree
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import InputError


def refuse_running(text: str, key: GangKey, events: Sequence[ClusterEvent]) -> None:
    """Raises InputError for a gang of which nobody waits, where nothing is said that would be different for it."""
    pods = [pod for pod in _pods(events) if (pod.namespace, pod.gang) == (key.namespace, key.name)]
    if not any(map(_waits, pods)):
        raise InputError(f"--gang {text}: it does not wait: each of its {len(pods)} pods has a node, or has ended")


def waiting_gang(
    text: str, namespace: str, events: Sequence[ClusterEvent], entries: Sequence[FileObject]
) -> GangKey:
    """Of several that one job has the first that waits. Raises InputError."""
    pods = _pods(events)
    there = {
        GangKey(pod.namespace, pod.gang): facts_of(GangKey(pod.namespace, pod.gang), None)
        for pod in pods
        if pod.gang
    }
    gangs = {
        event.gang.key: facts_of(event.gang.key, event.gang) for event in events if isinstance(event, GangUpdated)
    }
    facts = {**there, **gangs}
    waiting = {GangKey(pod.namespace, pod.gang) for pod in pods if _waits(pod)}
    # Parts of what an owner starts have names with slashes, so the first word may be a namespace or not.
    space, slash, name = text.partition("/")
    meant = ((space, name), (namespace, text)) if slash else ((namespace, text),)
    try:
        for where, what in meant:
            found = find_gangs(facts, where, what)
            with_pods = [key for key in found if key in there]
            with_pods = with_pods or _gangs_of_job(where, what, events, entries, there)
            if with_pods:
                return next((key for key in with_pods if key in waiting), with_pods[0])
            if found:
                raise InputError(
                    f"--gang {text}: it has no pods yet (Volcano makes them when the group is admitted), so their "
                    f"requests are unknown; ask about the file of the job with -f"
                )
    except AmbiguousGangError as error:
        raise InputError(f"--gang {text}: {error}") from error
    raise InputError(f"--gang {text}: no pod is of such a gang; write NAMESPACE/NAME as `phalanx jobs` has them")


def _pods(events: Sequence[ClusterEvent]) -> list[Pod]:
    """As they were last told of: more may be known of a pod once its owner is."""
    return list({event.pod.uid: event.pod for event in events if isinstance(event, PodUpdated)}.values())


def _waits(pod: Pod) -> bool:
    return not (pod.node or pod.finished)


def _gangs_of_job(
    namespace: str,
    name: str,
    events: Sequence[ClusterEvent],
    entries: Sequence[FileObject],
    there: Mapping[GangKey, GangNameFacts],
) -> list[GangKey]:
    """Those of a job whose operator calls its PodGroup something else."""
    tree = OwnerTree(namespace)
    for entry in entries:
        if entry.document["metadata"].get("namespace") == namespace:
            tree.add(entry.document)
    below, found = tree.below(name), set[GangKey]()
    for event in events if below else ():
        if isinstance(event, PodUpdated) and event.pod.uid in below and event.pod.gang:
            found.add(GangKey(event.pod.namespace, event.pod.gang))
        elif isinstance(event, GangUpdated) and event.gang.source and event.gang.source.uid in below:
            found.add(event.gang.key)
    return [key for key in there if key in found]
