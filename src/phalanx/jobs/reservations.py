"""Quota reservations for gangs before their pods exist (KEP 34, `totalResources`). No I/O.

Kubernetes charges quota per pod, so a reservation works only with an admission check that rejects pods of other
groups. The reservations of a namespace are in one object, in a namespace of Phalanx: its resourceVersion resolves
races.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.jobs.quota_shortage import NamespaceQuota, QuotaShortage
from phalanx.model.pod_quota import NONE, Amounts, amounts, mapping, plus, pod_matches, text
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.quantity import Quantity

#: Label of a namespace that permits reservations of its quota.
RESERVING, ENABLED = "phalanx.dev/quota-reservation", "enabled"
TOTAL_RESOURCES = "phalanx.dev/total-resources"
QUOTA_RESERVED = "phalanx.dev/quota-reserved"
#: Namespace and names of the ledgers: ConfigMaps that only Phalanx can write.
LEDGER_NAMESPACE = "kube-system"
LEDGER_PREFIX, LEDGER_KEY = "phalanx-quota-", "ledger"

#: Seconds without a member after which a reservation ends; seconds until an admitted pod appears in the quota;
#: and seconds for which a claim waits before it counts as reserved, so that earlier admitted pods have appeared.
IDLE_SECONDS, IN_FLIGHT_SECONDS, CLAIM_SECONDS = 600, 5, 2

Json = dict[str, Any]
Held = dict[str, dict[str, str]]
"""Amounts by quota and by the resource's name in it."""


class ReservationRequest(msgspec.Struct, frozen=True):
    """Reservation request of a PodGroup: the usage of all its pods, and a representative pod spec for quota
    scopes."""

    uid: str
    name: str
    created: int
    total: Amounts
    like: Json
    finished: bool = False


class GroupReservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Quota reservation of a PodGroup (by uid) for pods that do not exist yet.

    `claimed` is the time of the claim, while it can still fail. `idle_since` is the time since which the group
    has no pod. A reservation that is `over` (the text is the reason) reserves nothing any more.
    """

    name: str
    outstanding: Held = {}
    claimed: int = 0
    idle_since: int = 0
    over: str = ""


class InFlight(msgspec.Struct, frozen=True, rename="camel"):
    """Admitted pod that can be missing from the quota's usage, which showed `used` at the time of the admission."""

    at: int
    held: Held
    used: Held


class ReservationLedger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Quota reservations of a namespace by the PodGroups' uids, and admitted pods by the requests' uids."""

    groups: dict[str, GroupReservation] = {}
    in_flight: dict[str, InFlight] = {}


class ReservedPod(msgspec.Struct, frozen=True):
    """Running pod of a namespace with quota reservations: its spec, and its PodGroup."""

    spec: Json
    gang: str


def reservation_request(document: Json, gang: str, created: int = 0) -> tuple[ReservationRequest | None, str]:
    """Return the reservation request of a PodGroup, from its annotation or kube-batch's field; and the error of an
    invalid one."""
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
    """Return the new ledger of reservations, and for each PodGroup (uid) whether its quota is reserved: `True`, or
    the reason why not.

    A group gets its whole request or nothing. The oldest group is first. A younger group gets nothing if it
    requests a resource for which an older one waits, unless that one requests more than the limit.
    """
    known = list(quotas)
    in_flight = {
        uid: pod_in_flight
        for uid, pod_in_flight in ledger.in_flight.items()
        if now < pod_in_flight.at + IN_FLIGHT_SECONDS
    }
    groups: dict[str, GroupReservation] = {}
    answers: dict[str, str] = {}
    waiting: dict[tuple[str, str], str] = {}
    for request in sorted(requests, key=lambda pod_in_flight: (pod_in_flight.created, pod_in_flight.name)):
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
            groups[request.uid] = replace(before, outstanding=_as_text(wanted), idle_since=idle)
            answers[request.uid] = "True"
            continue
        reservations = [*groups.values()]
        reservations += [
            reservation for uid, reservation in ledger.groups.items() if uid not in groups and uid != request.uid
        ]
        short = _shortage(known, wanted, reservations, in_flight.values())
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
            groups[request.uid] = GroupReservation(request.name, _as_text(wanted), claimed, idle)
            answers[request.uid] = "True" if not claimed else "False: the quota is being reserved"
    return ReservationLedger(groups, in_flight), answers


def refusal_of_pod(
    ledger: ReservationLedger, quotas: Iterable[NamespaceQuota], spec: Json, gang: str, now: int
) -> tuple[str, InFlight]:
    """Return the reason why a pod of the gang `gang` ("" for none) would use quota reserved for other gangs, "" if
    it would not; and the pod's usage."""
    pod = InFlight(now, {}, {})
    for quota in sorted(quotas, key=lambda candidate: candidate.name):
        for name, amount in sorted(quota.charge(spec).items()):
            pod.held.setdefault(quota.name, {})[name] = str(amount)
            pod.used.setdefault(quota.name, {})[name] = str(quota.used[name])
            groups = [candidate for candidate in ledger.groups.values() if candidate.name != gang]
            held = _sum(groups, quota.name, name)
            flying = [
                candidate for candidate in ledger.in_flight.values() if now < candidate.at + IN_FLIGHT_SECONDS
            ]
            used, hard = quota.used[name], quota.hard[name]
            coming = _coming(flying, quota.name, name, used)
            # Pods that exceed the quota even without reservations are rejected by the API server itself.
            fits = used.nano + amount.nano <= hard.nano
            if fits and held.nano and used.nano + amount.nano + held.nano + coming > hard.nano:
                names = ", ".join(
                    sorted(
                        candidate.name for candidate in groups if name in candidate.outstanding.get(quota.name, {})
                    )
                )
                return (
                    f"exceeded quota: {quota.name}, requested: {name}={amount}, used: {name}={used}, "
                    f"limited: {name}={hard}, of which {name}={held} is reserved for the pods of {names}"
                ), pod
    return "", pod


def is_covered(ledger: ReservationLedger, gang: str, pod: InFlight) -> bool:
    """Return whether the gang's own reservation covers all usage of a pod."""
    mine = [group for group in ledger.groups.values() if group.name == gang]
    return all(
        amounts(held)[name] <= _sum(mine, quota, name) for quota, held in pod.held.items() for name in amounts(held)
    )


def holds_something(ledger: ReservationLedger) -> bool:
    return any(not group.over and group.outstanding for group in ledger.groups.values())


def read_ledger(config_map: Mapping[str, Any] | None) -> ReservationLedger:
    """Decode the reservation ledger in a ConfigMap. Raise msgspec.DecodeError if it is invalid."""
    stored = mapping(mapping(config_map).get("data")).get(LEDGER_KEY)
    return msgspec.json.decode(stored, type=ReservationLedger) if isinstance(stored, str) else ReservationLedger()


def with_ledger(config_map: Mapping[str, Any], ledger: ReservationLedger) -> Json:
    return {**config_map, "data": {LEDGER_KEY: msgspec.json.encode(ledger, order="sorted").decode()}}


def _expanded(total: Amounts) -> Amounts:
    """Return the resource amounts under every name that a ResourceQuota can use."""
    expanded: Amounts = {}
    for name, amount in total.items():
        bare = name.removeprefix("requests.")
        expanded[name] = amount
        if name in ("pods", "count/pods"):
            expanded["pods"] = expanded["count/pods"] = amount
        elif not name.startswith(("limits.", "count/")):
            expanded[bare] = expanded[f"requests.{bare}"] = amount
    return expanded


def _wanted(
    request: ReservationRequest, quotas: Sequence[NamespaceQuota], mine: Sequence[ReservedPod]
) -> dict[str, Amounts]:
    """Return the amounts to reserve for a PodGroup by quota: the total minus the usage of the group's existing
    pods."""
    amounts_by_quota: dict[str, Amounts] = {}
    for quota in quotas:
        if not all(pod_matches(selector, request.like) for selector in quota.selectors):
            continue
        remaining = {name: request.total[name] for name in quota.hard if name in request.total}
        for pod in mine:
            for name, amount in quota.charge(pod.spec).items():
                if name in remaining:
                    remaining[name] = Quantity(max(0, remaining[name].nano - amount.nano), remaining[name].style)
        amounts_by_quota[quota.name] = {name: amount for name, amount in remaining.items() if amount.nano}
    return amounts_by_quota


def _shortage(
    quotas: Sequence[NamespaceQuota],
    wanted: Mapping[str, Amounts],
    reservations: Sequence[GroupReservation],
    in_flight: Iterable[InFlight],
) -> QuotaShortage | None:
    flying = list(in_flight)
    for quota in sorted(quotas, key=attrgetter("name")):
        for name, amount in sorted(wanted.get(quota.name, {}).items()):
            hard, used = quota.hard[name], quota.used[name]
            held = _sum(reservations, quota.name, name).nano + _coming(flying, quota.name, name, used)
            room = Quantity(hard.nano - used.nano - held, hard.style)
            if amount > room:
                return QuotaShortage(quota.name, name, amount, room, hard, 0)
    return None


def _places(wanted: Mapping[str, Amounts]) -> set[tuple[str, str]]:
    return {(quota, name) for quota, missing in wanted.items() for name in missing}


def _sum(groups: Iterable[GroupReservation], quota: str, name: str) -> Quantity:
    return _of_held((group.outstanding for group in groups if not group.over), quota, name)


def _coming(flying: Sequence[InFlight], quota: str, name: str, used: Quantity) -> int:
    """Return the usage of admitted pods that the quota's status does not show yet."""
    total = _of_held((pod.held for pod in flying), quota, name).nano
    before = min((amounts(pod.used.get(quota)).get(name, used).nano for pod in flying), default=used.nano)
    return max(0, total - max(0, used.nano - before))


def _of_held(held: Iterable[Held], quota: str, name: str) -> Quantity:
    total = NONE
    for amounts_by_quota in held:
        total = plus(total, amounts(amounts_by_quota.get(quota)).get(name, NONE))
    return total


def _as_text(wanted: Mapping[str, Amounts]) -> Held:
    return {
        quota: {name: str(amount) for name, amount in missing.items()}
        for quota, missing in wanted.items()
        if missing
    }
