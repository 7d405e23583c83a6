"""The reason that a scheduler's sentence gives, where kube and Volcano have only one word for all of them."""

from __future__ import annotations

import re

# kube-scheduler's word on pods, Volcano's on groups: their tools know no others.
_VAGUE = frozenset({"Unschedulable", "NotEnoughResources", "NotEnoughTasks", "NotEnoughPodsOfTask"})
# How the sentences of `scheduling.diagnosis.verdicts` begin, and of those who declare gangs.
_BEGINNINGS = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"gang \S+ has \d+ of the \d+ (.+ )?members that it needs", "NotEnoughMembers"),
        (r"gang \S+ has \d+ of the \d+ subgroups \S+ that it needs", "NotEnoughMembers"),
        (r"subgroup .+ of gang \S+ has \d+ of the \d+ members that it needs", "NotEnoughMembers"),
        (r"waiting for members of PodGroup ", "NotEnoughMembers"),
        (r"waiting for (PodGroup|a Workload that declares the pod group) ", "PodGroupNotFound"),
        (r"gang \S+ is held: PodGroup \S+ not found", "PodGroupNotFound"),
        (r"gang \S+ is held: the pods of group \S+ do not say how many they are", "PodGroupNotFound"),
        (r"\d+ of the \d+ members that gang \S+ needs( \(.+?\))? are allowed; ", "QuotaExceeded"),
        (r"gang \S+ cannot start: queue \S+ does not exist", "QueueNotFound"),
        (r"gang \S+ cannot start: queue \S+ has child queues", "QueueNotLeaf"),
        (r"gang \S+ cannot start: .+ is clos(ed|ing) and takes nothing new", "QueueClosed"),
        (r"gang \S+ cannot start: .+ has spent its budget", "BudgetSpent"),
        (r"gang \S+ waits to be admitted: ", "AwaitingAdmission"),
        (r"gang \S+ waits behind .+, which keeps its order", "BehindInQueue"),
        (r"(gang|pod) \S+ waits for \d+ pod\(s\) to leave; ", "WaitingForEvictedPods"),
        (r"gang \S+ waits for CompositePodGroup ", "WaitingForComposite"),
        (r"gang \S+ waits for gang \S+( of its gang group:|, which does not name) ", "WaitingForGangGroup"),
        (r"gang \S+ needs .+, and all nodes together offer ", "NotEnoughResources"),
        (r"gang \S+ asks for minResources that the cluster lacks", "NotEnoughResources"),
        (r"pod \S+ cannot be scheduled: ", "UnreadablePod"),
        (r"(gang|pod) \S+ is set aside because planning it failed", "PlanningFailed"),
    )
)
_OF_NODES = re.compile(
    r"(?:\d+ of the \d+ members that .*?gang \S+ needs.*? fit.*?; )?"
    r"(?:(?:the pod|pod \S+) asks for |0/(?P<nodes>\d+) nodes.*? available(?: for \S+)?: (?P<objections>.*))"
)
# Characters of a sentence that are looked at: who may write conditions must not keep others' commands busy.
_LONGEST = 1000
_AFTERWARDS = re.compile(r"\. (?:To help|preemption): ")


def told_reason(reason: str, message: str) -> str:
    """The reason, or the one that its sentence begins with where the word alone says no more than that it waits."""
    return reason if reason not in _VAGUE else _of_sentence(message[:_LONGEST]) or reason


def _of_sentence(message: str) -> str:
    for beginning, reason in _BEGINNINGS:
        if beginning.match(message):
            return reason
    found = _OF_NODES.match(message)
    if found is None:
        return ""
    return (
        "UnsupportedField" if found["nodes"] is None else _of_objections(int(found["nodes"]), found["objections"])
    )


def _of_objections(nodes: int, text: str) -> str:
    """`2 Insufficient cpu, 1 node(s) had untolerated taint`: a node that lacks room is one that the pod may use."""
    text = _AFTERWARDS.split(text)[0]
    if not re.match(r"\d+ |there are no nodes", text):
        return "PrerequisiteMissing"
    closed = sum(map(int, re.findall(r"(?:^|, )(\d+) ", text)))
    roomless = re.search(r"(?:^|, )\d+ (Insufficient |Too many pods)", text) is not None
    return "NotEnoughResources" if roomless or closed < nodes else "NoEligibleNode"
