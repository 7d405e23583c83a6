"""Kubelet admission: the check whether a pod fits beside the pods on its node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.resources import CPU, MEMORY, PODS, Requests, parse_amount
from phalanx.model.selectors import HostPort
from phalanx.model.text.quantity import QuantityError

# Order in which a kubelet checks resources; it decides the reason if a pod exceeds several resources.
_FIRST = (PODS, CPU, MEMORY, "ephemeral-storage")


class Rejection(msgspec.Struct, frozen=True):
    """Rejection of a bound pod by its kubelet; `reason` is the status.reason of the pod."""

    reason: str
    message: str


class PodCharge(msgspec.Struct, frozen=True):
    """Resources and host ports that one pod occupies on its node; requests without the pod slot."""

    requests: Requests = ()
    ports: tuple[HostPort, ...] = ()


class NodeInfo:
    """Capacity of one node and the resources of its pods, in the units of `phalanx.model.resources`.

    Allocatable can shrink below the used amount: then no more pods are admitted and running pods continue. An
    unknown resource has capacity 0. (A real kubelet admits a pod that requests an extended resource unknown to its
    node; this agent rejects it, because the pod would not get the resource.)
    """

    def __init__(self, allocatable: Mapping[str, int] | None = None) -> None:
        self._allocatable: dict[str, int] = dict(allocatable or {})
        self._used: dict[str, int] = {}
        self._charges: dict[str, PodCharge] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._charges

    def __len__(self) -> int:
        return len(self._charges)

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the uids of the pods that occupy the node."""
        return tuple(self._charges)

    @property
    def allocatable(self) -> Mapping[str, int]:
        return self._allocatable

    def used(self, resource: str) -> int:
        return len(self._charges) if resource == PODS else self._used.get(resource, 0)

    def resize(self, allocatable: Mapping[str, int]) -> None:
        self._allocatable = dict(allocatable)

    def admit(self, uid: str, charge: PodCharge) -> Rejection | None:
        """Admit a pod to the node, or return the reason of its rejection. An admitted pod is counted with its new
        requests."""
        rejection = self.check(uid, charge)
        if rejection is None:
            self.occupy(uid, charge)
        return rejection

    def check(self, uid: str, charge: PodCharge) -> Rejection | None:
        """Return a rejection if the pod does not fit beside the node's other pods; None if it fits. Change
        nothing."""
        own = self._charges.get(uid, PodCharge())
        held = dict(own.requests)
        wanted = dict(charge.requests)
        wanted[PODS] = 1
        held[PODS] = 1 if uid in self._charges else 0
        for resource in sorted(wanted, key=_admission_order):
            request, capacity = wanted[resource], self._allocatable.get(resource, 0)
            used = self.used(resource) - held.get(resource, 0)
            if request > 0 and request > capacity - used:
                return Rejection(
                    f"OutOf{resource}",
                    f"Pod was rejected: Node didn't have enough resource: {resource}, "
                    f"requested: {request}, used: {used}, capacity: {capacity}",
                )
        return self._port_conflict(uid, charge.ports)

    def occupy(self, uid: str, charge: PodCharge) -> None:
        """Count the resources of a running pod, even if it does not fit (an earlier agent admitted it)."""
        self.release(uid)
        self._charges[uid] = charge
        for resource, amount in charge.requests:
            self._used[resource] = self._used.get(resource, 0) + amount

    def release(self, uid: str) -> None:
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        for resource, amount in charge.requests:
            remaining = self._used[resource] - amount
            if remaining:
                self._used[resource] = remaining
            else:
                del self._used[resource]

    def _port_conflict(self, uid: str, ports: tuple[HostPort, ...]) -> Rejection | None:
        if not ports:
            return None
        for other_uid, charge in self._charges.items():
            for used_port in charge.ports:
                for port in ports:
                    if other_uid != uid and port.conflicts_with(used_port):
                        return Rejection(
                            "NodePorts",
                            f"Pod was rejected: host port {port.port}/{port.protocol} is taken on this node",
                        )
        return None


def _admission_order(resource: str) -> tuple[int, str]:
    return (_FIRST.index(resource) if resource in _FIRST else len(_FIRST), resource)


def read_amounts(quantities: Mapping[str, object] | None, where: str) -> tuple[dict[str, int], list[str]]:
    """Parse a list of resource quantities; also return a line for each unreadable quantity, which counts as
    absent."""
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, value in (quantities or {}).items():
        try:
            amounts[name] = parse_amount(name, value)
        except QuantityError as error:
            problems.append(f"{where}.{name}: {error}")
    return amounts, problems
