"""Quota that is held for groups before their pods exist (KEP 34, `totalResources`). Pure.

Kubernetes charges quota pod by pod, so a reservation only holds while an admission check refuses others' pods. What
is held stands in one object for each namespace, in a namespace of ours: its version decides who was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.jobs.quota_shortage import NamespaceQuota, QuotaShortage
from phalanx.model.pod_quota import NONE, Amounts, amounts, mapping, plus, pod_matches, text
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.quantity import Quantity

#: The label of a namespace whose quota may be reserved.
RESERVING, ENABLED = "phalanx.dev/quota-reservation", "enabled"
TOTAL_RESOURCES = "phalanx.dev/total-resources"
QUOTA_RESERVED = "phalanx.dev/quota-reserved"
#: Where the ledgers are kept: ConfigMaps that only we may write.
LEDGER_NAMESPACE = "kube-system"
LEDGER_PREFIX, LEDGER_KEY = "phalanx-quota-", "ledger"

#: Seconds without a member after which a reservation ends, after which an admitted pod shows in the quota, and for
#: which a claim is defended before it is called reserved: pods that were admitted before it show by then.
IDLE_SECONDS, IN_FLIGHT_SECONDS, CLAIM_SECONDS = 600, 5, 2

Json = dict[str, Any]
Held = dict[str, dict[str, str]]
"""By quota and the resource's name in it: amounts."""


class ReservationRequest(msgspec.Struct, frozen=True):
    """A group that wants quota held: what all its pods use, and a pod spec like theirs, which scopes select."""

    uid: str
    name: str
    created: int
    total: Amounts
    like: Json
    finished: bool = False


class GroupReservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is still held for a group (by uid). `claimed` is when it was, as long as that may yet fail. `idle_since`
    is since when it has no pod. One that is `over`, which says why, holds nothing any more."""

    name: str
    outstanding: Held = {}
    claimed: int = 0
    idle_since: int = 0
    over: str = ""


class InFlight(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that was admitted when so much was `used`, and need not show in the quota yet."""

    at: int
    held: Held
    used: Held


class ReservationLedger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The reservations of a namespace, by the groups' uids, and pods on their way, by the requests' uids."""

    groups: dict[str, GroupReservation] = {}
    in_flight: dict[str, InFlight] = {}


class ReservedPod(msgspec.Struct, frozen=True):
    """A living pod of the namespace: its spec, and the group that it names."""

    spec: Json
    gang: str


def reservation_request(document: Json, gang: str, created: int = 0) -> tuple[ReservationRequest | None, str]:
    """What a PodGroup asks for, in its annotation or in kube-batch's field; and what is wrong with that."""
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    stated: object = spec.get("totalResources")
    note = mapping(metadata.get("annotations")).get(TOTAL_RESOURCES)
    if note is not None:
        try:
            stated = decode_json(note) if isinstance(note, str) else None
        except (msgspec.DecodeError, RecursionError):
            stated = None
    total = amounts(stated)
    if (stated is None and note is None) or stated == {}:
        return None, ""
    if len(total) != len(mapping(stated)) or not total:
        where = f"annotation {TOTAL_RESOURCES}" if note is not None else "spec.totalResources"
        return None, f'{where} cannot be read; write amounts such as {{"pods": "4", "cpu": "8"}}'
    pod: Json = {name: str(amount) for name, amount in total.items() if name != "pods"}
    like = {
        "containers": [{"resources": {"requests": pod}}],
        "priorityClassName": text(spec.get("priorityClassName")),
    }
    uid, name = text(metadata.get("uid")), text(metadata.get("name"))
    finished = mapping(document.get("status")).get("phase") in ("Completed", "Finished", "Failed")
    return ReservationRequest(uid, gang or name, created, _expanded(total), like, finished), ""


def renew(
    ledger: ReservationLedger,
    requests: Sequence[ReservationRequest],
    quotas: Iterable[NamespaceQuota],
    pods: Sequence[ReservedPod],
    now: int,
) -> tuple[ReservationLedger, dict[str, str]]:
    """The ledger as it should be, and for each group (uid) whether its quota is reserved: `True`, or why not.

    A group gets all that it asks for or nothing. The oldest comes first; a younger one that wants a resource for
    which an older one waits gets nothing, unless that one asks for more than the limit.
    """
    known = list(quotas)
    in_flight = {uid: each for uid, each in ledger.in_flight.items() if now < each.at + IN_FLIGHT_SECONDS}
    groups: dict[str, GroupReservation] = {}
    answers: dict[str, str] = {}
    waiting: dict[tuple[str, str], str] = {}
    for request in sorted(requests, key=lambda each: (each.created, each.name)):
        mine = [pod for pod in pods if pod.gang == request.name]
        wanted = _wanted(request, known, mine)
        before = ledger.groups.get(request.uid)
        over = before.over if before is not None else ""
        if request.finished:
            over = "the group has finished"
        idle = 0 if mine else (before.idle_since if before is not None else 0) or now
        if not over and before is not None and idle and now >= idle + IDLE_SECONDS:
            over = f"no member within {IDLE_SECONDS // 60} minutes"
        if over:
            groups[request.uid] = GroupReservation(request.name, over=over)
            answers[request.uid] = f"False: {over}"
            continue
        if before is not None and not before.claimed:
            groups[request.uid] = replace(before, outstanding=_said(wanted), idle_since=idle)
            answers[request.uid] = "True"
            continue
        others = [*groups.values()]
        others += [each for uid, each in ledger.groups.items() if uid not in groups and uid != request.uid]
        short = _shortage(known, wanted, others, in_flight.values())
        first = next((waiting[place] for place in sorted(_places(wanted)) if place in waiting), None)
        if short is not None:
            answers[request.uid] = f"False: {short}"
            if not short.hopeless:
                waiting |= {(short.quota, short.resource): request.name}
        elif first is not None:
            answers[request.uid] = f"False: {first} is older and waits for the same quota"
        else:
            claimed = before.claimed if before is not None else now
            if now >= claimed + CLAIM_SECONDS:
                claimed = 0
            groups[request.uid] = GroupReservation(request.name, _said(wanted), claimed, idle)
            answers[request.uid] = "True" if not claimed else "False: it is being reserved"
    return ReservationLedger(groups, in_flight), answers


def refusal_of_pod(
    ledger: ReservationLedger, quotas: Iterable[NamespaceQuota], spec: Json, gang: str, now: int
) -> tuple[str, InFlight]:
    """Why a pod that names this group ("" for none) would take what is held for others, "" where it would not; and
    what it takes."""
    pod = InFlight(now, {}, {})
    for quota in sorted(quotas, key=lambda each: each.name):
        for name, amount in sorted(quota.charge(spec).items()):
            pod.held.setdefault(quota.name, {})[name] = str(amount)
            pod.used.setdefault(quota.name, {})[name] = str(quota.used[name])
            groups = [each for each in ledger.groups.values() if each.name != gang]
            held = _sum(groups, quota.name, name)
            flying = [each for each in ledger.in_flight.values() if now < each.at + IN_FLIGHT_SECONDS]
            used, hard = quota.used[name], quota.hard[name]
            coming = _coming(flying, quota.name, name, used)
            # What is refused without any reservation the API server refuses in its own words.
            fits = used.nano + amount.nano <= hard.nano
            if fits and held.nano and used.nano + amount.nano + held.nano + coming > hard.nano:
                names = ", ".join(
                    sorted(each.name for each in groups if name in each.outstanding.get(quota.name, {}))
                )
                return (
                    f"exceeded quota: {quota.name}, requested: {name}={amount}, used: {name}={used}, "
                    f"limited: {name}={hard}, of which {name}={held} is reserved for the pods of {names}"
                ), pod
    return "", pod


def is_covered(ledger: ReservationLedger, gang: str, pod: InFlight) -> bool:
    """Whether all that a pod takes is held for its own group."""
    mine = [each for each in ledger.groups.values() if each.name == gang]
    return all(
        amounts(each)[name] <= _sum(mine, quota, name) for quota, each in pod.held.items() for name in amounts(each)
    )


def holds_something(ledger: ReservationLedger) -> bool:
    return any(not each.over and each.outstanding for each in ledger.groups.values())


def read_ledger(config_map: Mapping[str, Any] | None) -> ReservationLedger:
    """Raises msgspec.DecodeError for what is none."""
    stored = mapping(mapping(config_map).get("data")).get(LEDGER_KEY)
    return msgspec.json.decode(stored, type=ReservationLedger) if isinstance(stored, str) else ReservationLedger()


def with_ledger(config_map: Mapping[str, Any], ledger: ReservationLedger) -> Json:
    return {**config_map, "data": {LEDGER_KEY: msgspec.json.encode(ledger, order="sorted").decode()}}


def _expanded(total: Amounts) -> Amounts:
    """Under every name that a quota may use."""
    found: Amounts = {}
    for name, amount in total.items():
        bare = name.removeprefix("requests.")
        found[name] = amount
        if name in ("pods", "count/pods"):
            found["pods"] = found["count/pods"] = amount
        elif not name.startswith(("limits.", "count/")):
            found[bare] = found[f"requests.{bare}"] = amount
    return found


def _wanted(
    request: ReservationRequest, quotas: Sequence[NamespaceQuota], mine: Sequence[ReservedPod]
) -> dict[str, Amounts]:
    """What is to be held by quota: the total without what the group's pods are charged already."""
    found: dict[str, Amounts] = {}
    for quota in quotas:
        if not all(pod_matches(selector, request.like) for selector in quota.selectors):
            continue
        left = {name: request.total[name] for name in quota.hard if name in request.total}
        for pod in mine:
            for name, amount in quota.charge(pod.spec).items():
                if name in left:
                    left[name] = Quantity(max(0, left[name].nano - amount.nano), left[name].style)
        found[quota.name] = {name: amount for name, amount in left.items() if amount.nano}
    return found


def _shortage(
    quotas: Sequence[NamespaceQuota],
    wanted: Mapping[str, Amounts],
    others: Sequence[GroupReservation],
    in_flight: Iterable[InFlight],
) -> QuotaShortage | None:
    flying = list(in_flight)
    for quota in sorted(quotas, key=lambda each: each.name):
        for name, amount in sorted(wanted.get(quota.name, {}).items()):
            hard, used = quota.hard[name], quota.used[name]
            held = _sum(others, quota.name, name).nano + _coming(flying, quota.name, name, used)
            room = Quantity(hard.nano - used.nano - held, hard.style)
            if amount > room:
                return QuotaShortage(quota.name, name, amount, room, hard, 0)
    return None


def _places(wanted: Mapping[str, Amounts]) -> set[tuple[str, str]]:
    return {(quota, name) for quota, each in wanted.items() for name in each}


def _sum(groups: Iterable[GroupReservation], quota: str, name: str) -> Quantity:
    return _of_held((each.outstanding for each in groups if not each.over), quota, name)


def _coming(flying: Sequence[InFlight], quota: str, name: str, used: Quantity) -> int:
    """What pods on their way will use beyond what shows already."""
    total = _of_held((each.held for each in flying), quota, name).nano
    before = min((amounts(each.used.get(quota)).get(name, used).nano for each in flying), default=used.nano)
    return max(0, total - max(0, used.nano - before))


def _of_held(held: Iterable[Held], quota: str, name: str) -> Quantity:
    total = NONE
    for each in held:
        total = plus(total, amounts(each.get(quota)).get(name, NONE))
    return total


def _said(wanted: Mapping[str, Amounts]) -> Held:
    return {quota: {name: str(amount) for name, amount in each.items()} for quota, each in wanted.items() if each}
