"""ClaimQuestion: the device requests of a pod's ResourceClaims, resolved once for all nodes and equal pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import msgspec

from phalanx.cluster.dra.errors import SelectorError
from phalanx.cluster.dra.selectors import Selectors
from phalanx.cluster.dra.sharing import Consumption, consumption
from phalanx.cluster.dra.supply import CounterId, Offer
from phalanx.cluster.dra.taint_rules import rules_of
from phalanx.model.devices.claims import (
    ClaimSpec,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceClass,
    DeviceRequest,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
)
from phalanx.model.text.quantity import QuantityError

_EFFECTS = ("NoSchedule", "NoExecute")
_SCALARS = ("int", "bool", "string", "version")


class DraView(msgspec.Struct, frozen=True, cache_hash=True):
    """A device as the question sees it: devices with equal views and equal use are interchangeable.

    `fits` has a bit for each ask with matching selectors, `tolerated` one for each ask that tolerates its taints.
    `attributes` are the values that constraints compare (None: absent). `consumes` is, for each ask, its
    consumption of a shareable device. `rules` are the names of DeviceTaintRules with a taint that an ask with
    matching selectors does not tolerate.
    """

    fits: int
    tolerated: int
    attributes: tuple[DeviceAttribute | None, ...] = ()
    draws: tuple[tuple[CounterId, int], ...] = ()
    shareable: bool = False
    consumes: tuple[Consumption | None, ...] = ()
    fault: str = ""
    rules: tuple[str, ...] = ()


class Rule(msgspec.Struct, frozen=True):
    """A constraint on a claim's devices: its column of `DraView.attributes`, and the (request, alternative) pairs
    of the claim to which it applies."""

    column: int
    distinct: bool
    concerns: frozenset[tuple[int, int]]


class ClaimPart(msgspec.Struct, frozen=True):
    """One ResourceClaim: its requests, each with the numbers of its asks (alternatives, best first), and its
    rules."""

    spec: ClaimSpec
    requests: tuple[tuple[DeviceRequest, tuple[int, ...]], ...]
    rules: tuple[Rule, ...]


class ClaimQuestion:
    """Device requests of several ResourceClaims that are allocated together. `fault` is the reason why no node can
    satisfy them."""

    def __init__(
        self,
        specs: Sequence[ClaimSpec],
        classes: Mapping[str, DeviceClass],
        selectors: Selectors,
        taint_rules: Sequence[DeviceTaintRule] = (),
    ) -> None:
        self.asks: list[DeviceAsk] = []
        self._taint_rules = tuple(taint_rules)
        self.classes = classes
        self.fault = ""
        self._selectors = selectors
        self._columns: dict[str, int] = {}
        self._views: WeakKeyDictionary[Offer, DraView | None] = WeakKeyDictionary()
        self._known: dict[DraView | None, DraView | None] = {}
        self.parts = tuple(self._part(spec) for spec in specs)
        if not self.fault:
            self.fault = next(filter(None, map(self._complaint, self.asks)), "")

    def view(self, offer: Offer) -> DraView | None:
        """Return the device as this ClaimQuestion sees it; None if no device request matches it."""
        if offer not in self._views:
            view = self._look(offer.id[0], offer)
            self._views[offer] = self._known.setdefault(view, view)
        return self._views[offer]

    def _part(self, spec: ClaimSpec) -> ClaimPart:
        requests: list[tuple[DeviceRequest, tuple[int, ...]]] = []
        for request in spec.requests:
            first = len(self.asks)
            self.asks.extend(request.asks)
            requests.append((request, tuple(range(first, len(self.asks)))))
        rules = tuple(
            Rule(
                self._columns.setdefault(constraint.match or constraint.distinct, len(self._columns)),
                not constraint.match,  # if both are stated, kube-scheduler uses the first
                frozenset(
                    (position, alternative)
                    for position, (request, asks) in enumerate(requests)
                    for alternative in range(len(asks))
                    if not constraint.requests
                    or request.name in constraint.requests
                    or request.full_name(alternative) in constraint.requests
                ),
            )
            for constraint in spec.constraints
        )
        self.fault = self.fault or spec.fault
        return ClaimPart(spec, tuple(requests), rules)

    def _complaint(self, ask: DeviceAsk) -> str:
        device_class = self.classes.get(ask.device_class)
        if device_class is None:
            return f"request {ask.name}: device class {ask.device_class} does not exist"
        if device_class.problem:
            return f"device class {ask.device_class}: {device_class.problem}"
        for owner, selectors in self._selectors_of(ask):
            for number, text in enumerate(selectors):
                try:
                    self._selectors.compiled(text)
                except SelectorError as error:
                    return f"{owner}: selector #{number}: {error}"
        return ""

    def _selectors_of(self, ask: DeviceAsk) -> tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]:
        device_class = self.classes[ask.device_class]
        return (f"class {ask.device_class}", device_class.selectors), (f"request {ask.name}", ask.selectors)

    def _look(self, driver: str, offer: Offer) -> DraView | None:
        device = offer.device
        rules = rules_of(self._taint_rules, offer.id, device, self.classes, self._selectors)
        taints = (*device.taints, *(rule.taint for rule in rules))
        fits = tolerated = 0
        consumes: list[Consumption | None] = []
        for number, ask in enumerate(self.asks):
            try:
                selected = self._selected(ask, driver, device)
            except SelectorError as error:
                return DraView(0, 0, fault=str(error))
            try:
                consumed = consumption(ask, device) if selected else None
            except QuantityError as error:
                return DraView(0, 0, fault=f"device {'/'.join(offer.id)}: {error}")
            consumes.append(consumed)
            fits |= (consumed is not None) << number
            tolerated |= _tolerates(ask.tolerations, taints) << number
        if not fits:
            return None
        return DraView(
            fits=fits,
            tolerated=tolerated,
            attributes=tuple(_attribute(driver, device, name) for name in self._columns),
            draws=tuple(sorted(offer.draws.items())),
            shareable=device.shareable,
            consumes=tuple(consumes) if device.shareable else (),
            rules=self._untolerated(rules, fits),
        )

    def _untolerated(self, rules: Sequence[DeviceTaintRule], fits: int) -> tuple[str, ...]:
        """Return the names of rules whose taint an ask in the mask `fits` does not tolerate."""
        asks = [ask for number, ask in enumerate(self.asks) if fits >> number & 1]
        return tuple(
            rule.name for rule in rules if not all(_tolerates(ask.tolerations, (rule.taint,)) for ask in asks)
        )

    def _selected(self, ask: DeviceAsk, driver: str, device: Device) -> bool:
        """Return whether the selectors of a device request match the device. Raise SelectorError."""
        for owner, selectors in self._selectors_of(ask):
            for number, text in enumerate(selectors):
                try:
                    if not self._selectors.matches(text, driver, device):
                        return False
                except SelectorError as error:
                    raise SelectorError(f"{owner}: selector #{number}: CEL runtime error: {error}") from None
        return True


def _attribute(driver: str, device: Device, name: str) -> DeviceAttribute | None:
    attributes = dict(device.attributes)
    domain, _, identifier = name.rpartition("/")
    attribute = attributes.get(name) or (attributes.get(identifier) if domain == driver else None)
    return attribute if attribute is not None and attribute.kind in _SCALARS else None


def _tolerates(tolerations: tuple[DeviceToleration, ...], taints: tuple[DeviceTaint, ...]) -> bool:
    return all(
        any(_tolerated(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in _EFFECTS
    )


def _tolerated(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
