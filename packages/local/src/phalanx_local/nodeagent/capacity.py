"""A kubelet's admission: does this pod fit beside those that the node has already taken?"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.resources import CPU, MEMORY, PODS, Requests, parse_amount
from phalanx.model.selectors import HostPort
from phalanx.model.text.quantity import QuantityError

# The order in which a kubelet looks, so that a pod that overflows twice is refused for the same reason.
_FIRST = (PODS, CPU, MEMORY, "ephemeral-storage")


class Rejection(msgspec.Struct, frozen=True):
    """Why a node refuses a pod, in the kubelet's words: `reason` becomes the pod's status.reason."""

    reason: str
    message: str


class PodCharge(msgspec.Struct, frozen=True):
    """What one pod takes from its node: requests without the pod slot, and ports of the node itself."""

    requests: Requests = ()
    ports: tuple[HostPort, ...] = ()


class NodeInfo:
    """What one node offers and what its pods have taken, in the units of `phalanx.model.resources`.

    Allocatable may shrink below what is used: then nothing more is admitted and nothing that runs is touched.
    A resource that the node does not offer is offered zero times. (A real kubelet admits a pod that asks for an
    extended resource unknown to its node; we refuse, because the pod would not get what it asked for.)
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
        """The uids of the pods that occupy the node."""
        return tuple(self._charges)

    @property
    def allocatable(self) -> Mapping[str, int]:
        return self._allocatable

    def used(self, resource: str) -> int:
        return len(self._charges) if resource == PODS else self._used.get(resource, 0)

    def resize(self, allocatable: Mapping[str, int]) -> None:
        self._allocatable = dict(allocatable)

    def admit(self, uid: str, charge: PodCharge) -> Rejection | None:
        """Take the pod in, or say why not. A pod that is in already is charged anew."""
        rejection = self.check(uid, charge)
        if rejection is None:
            self.occupy(uid, charge)
        return rejection

    def check(self, uid: str, charge: PodCharge) -> Rejection | None:
        """Whether the pod would fit beside all others; changes nothing."""
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
        """Charge a pod that is here already, whether it fits or not (it ran before this agent came)."""
        self.release(uid)
        self._charges[uid] = charge
        for resource, amount in charge.requests:
            self._used[resource] = self._used.get(resource, 0) + amount

    def release(self, uid: str) -> None:
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        for resource, amount in charge.requests:
            left = self._used[resource] - amount
            if left:
                self._used[resource] = left
            else:
                del self._used[resource]

    def _port_conflict(self, uid: str, ports: tuple[HostPort, ...]) -> Rejection | None:
        if not ports:
            return None
        for other, charge in self._charges.items():
            for taken in charge.ports:
                for port in ports:
                    if other != uid and port.conflicts_with(taken):
                        return Rejection(
                            "NodePorts",
                            f"Pod was rejected: host port {port.port}/{port.protocol} is taken on this node",
                        )
        return None


def _admission_order(resource: str) -> tuple[int, str]:
    return (_FIRST.index(resource) if resource in _FIRST else len(_FIRST), resource)


def read_amounts(quantities: Mapping[str, object] | None, where: str) -> tuple[dict[str, int], list[str]]:
    """The amounts of a resource list, and a line for each quantity that cannot be read (it counts as absent)."""
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, value in (quantities or {}).items():
        try:
            amounts[name] = parse_amount(name, value)
        except QuantityError as error:
            problems.append(f"{where}.{name}: {error}")
    return amounts, problems
