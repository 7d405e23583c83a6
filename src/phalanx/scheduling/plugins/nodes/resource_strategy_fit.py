"""Plugin `resource-strategy-fit` of Volcano: pack or spread nodes by resource."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.text.decoding import decode_json, quoted
from phalanx.plugin import (
    CPU_COLUMN,
    MEMORY_COLUMN,
    Arguments,
    BoolArray,
    ClassRecord,
    FloatArray,
    IntArray,
    Load,
    NodeTable,
    Plugin,
    PolicyError,
    Rows,
)

_MOST = "MostAllocated"
_LEAST = "LeastAllocated"
_BY_DEFAULT: Mapping[str, object] = {"cpu": {"type": _LEAST, "weight": 1}, "memory": {"type": _LEAST, "weight": 1}}


class FitStrategy(msgspec.Struct, frozen=True):
    most: bool
    weight: int


class Scarce(msgspec.Struct, frozen=True):
    """Scarce resources: pods that do not request them should avoid their nodes (Volcano's sra, "scarce resource
    avoidance").
    """

    weight: int = 0
    weights: tuple[tuple[str, int], ...] = ()


class ResourceStrategyFit(Plugin):
    """Score: weighted mean over the named requested resources of 100 x used (MostAllocated) or free
    (LeastAllocated).

    It is multiplied by `resourceStrategyFitWeight`. `sra` adds 100 x (part of the scarce resources that a node does
    not have) x its weight. A resource name that ends in `*` is a prefix. With `proportional`, pods without a scarce
    resource (for example GPUs) must not use the CPU and memory that belongs to the idle amount of it. Annotations
    of a pod can override type and weights (`PodClass.strategy`).
    """

    name = "resource-strategy-fit"
    arguments = ("proportional", "resourceStrategyFitWeight", "resources", "sra")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("resourceStrategyFitWeight", 10, least=0)
        self._strategies: dict[str, FitStrategy] = {}
        for name, entry in (arguments.mapping("resources") or _BY_DEFAULT).items():
            self._strategies[name] = _strategy(arguments.owner, name, entry)
        self._scarce = _scarce(arguments)
        self._proportions = _proportions(arguments)
        if not self._proportions:
            self.disabled_points = frozenset({"max_copies", "explain"})

    def max_copies(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> IntArray:
        """Return the copies that leave CPU and memory idle in proportion to each idle scarce resource.

        Pods that request a scarce resource are not limited.
        """
        copies = np.full(nodes.alive[rows].shape, UNLIMITED_COPIES, dtype=np.int64)
        requests = dict(pod_class.spec.requests)
        if any(name in requests for name, _, _ in self._proportions):
            return copies
        for name, cpu, memory in self._proportions:
            column = nodes.space.find(name)
            if column is None:
                continue
            scarce = nodes.idle[column][rows].clip(min=0)
            for place, rate, requested in (
                (CPU_COLUMN, cpu, requests.get(CPU, 0)),
                (MEMORY_COLUMN, memory, requests.get(MEMORY, 0)),
            ):
                if requested:
                    available = (nodes.idle[place][rows] - scarce * rate).clip(min=0)
                    copies = np.where(scarce > 0, np.minimum(copies, available // requested), copies)
        return copies

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        names = ", ".join(name for name, _, _ in self._proportions)
        return [
            (
                f"node(s) reserved CPU and memory for pods that request {names}",
                self.max_copies(pod_class, nodes, rows) == 0,
            )
        ]

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        return self._fit(pod_class, load) + self._scarce_score(pod_class, load)

    def _scarce_score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        """Return the score by missing scarce resources; 0 where a requested resource is missing."""
        scarce, nodes = self._scarce, load.nodes
        if not scarce.weight:
            return 0.0
        present = np.zeros(nodes.capacity)[load.rows]
        for name, weight in scarce.weights:
            column = nodes.space.find(name)
            if column is not None:
                present += np.where(nodes.allocatable[column][load.rows] > 0, float(weight), 0.0)
        total = sum(weight for _, weight in scarce.weights)
        points = (1.0 - present / total if total else present) * (100.0 * scarce.weight)
        has_all = (nodes.allocatable[pod_class.columns][:, load.rows] > 0).all(axis=0)
        result: FloatArray = np.where(has_all, points, 0.0)
        return result if load.copies is None else result[:, None]

    def _fit(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        chosen = [
            (column, strategy)
            for name, amount in pod_class.spec.requests
            if amount and (strategy := self._strategy_for(pod_class, name)) is not None and strategy.weight
            if (column := load.column(name)) is not None
        ]
        total = sum(strategy.weight for _, strategy in chosen)
        if not total or not self._weight:
            return 0.0
        result: FloatArray | float = 0.0
        for column, strategy in chosen:
            used = np.minimum(load.fraction(column), 1.0)
            result = result + (used if strategy.most else 1.0 - used) * strategy.weight
        return result * (100.0 * self._weight / total)

    def _strategy_for(self, pod_class: ClassRecord, resource: str) -> FitStrategy | None:
        strategy = self._strategies.get(resource)
        if strategy is None:
            prefixes = [name for name in self._strategies if name.endswith("*") and resource.startswith(name[:-1])]
            strategy = self._strategies[max(prefixes, key=len)] if prefixes else None
        override = pod_class.spec.strategy
        return _overridden(override, resource, strategy) if override else strategy


def _scarce(arguments: Arguments) -> Scarce:
    settings = arguments.mapping("sra")
    own = Arguments(f"{arguments.owner}: sra", settings)
    own.only(("enable", "resources", "weight", "resourceWeight"))
    weights = Arguments(f"{arguments.owner}: sra.resourceWeight", own.mapping("resourceWeight"))
    names = dict.fromkeys(name.strip() for name in own.text("resources").split(",") if name.strip())
    weighted_names = tuple((name, weights.integer(name, 1, least=0)) for name in names)
    weight = own.integer("weight", 0, least=0)
    return Scarce(weight, weighted_names) if own.boolean("enable", False) else Scarce()


def _proportions(arguments: Arguments) -> tuple[tuple[str, int, int], ...]:
    """Return the `proportional` arguments as (scarce resource, millicores, bytes that belong to one of it); a GB is
    10**9 bytes, as in Volcano."""
    own = Arguments(f"{arguments.owner}: proportional", arguments.mapping("proportional"))
    own.only(("enable", "resources", "resourceProportion"))
    rates = Arguments(f"{arguments.owner}: proportional.resourceProportion", own.mapping("resourceProportion"))
    names = dict.fromkeys(name.strip() for name in own.text("resources").split(",") if name.strip())
    proportions = tuple(
        (
            name,
            round(rates.number(f"{name}.cpu", 1.0, least=0) * 1000),
            round(rates.number(f"{name}.memory", 1.0, least=0) * 10**9),
        )
        for name in names
    )
    return proportions if own.boolean("enable", False) else ()


def _strategy(owner: str, resource: str, entry: object) -> FitStrategy:
    if not isinstance(entry, Mapping):
        raise PolicyError(
            f"{owner}: argument resources.{resource}: {quoted(entry)} is not a mapping of type and weight"
        )
    kind, weight = entry.get("type", _LEAST), entry.get("weight", 1)
    if kind not in (_MOST, _LEAST):
        raise PolicyError(
            f"{owner}: argument resources.{resource}.type: {quoted(kind)} is unknown; expected {_MOST} or {_LEAST}"
        )
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 0:
        raise PolicyError(
            f"{owner}: argument resources.{resource}.weight: {quoted(weight)} is not a whole number of at least 0"
        )
    return FitStrategy(kind == _MOST, weight)


def _overridden(override: str, resource: str, base: FitStrategy | None) -> FitStrategy | None:
    """Return a pod's own strategy from JSON {"type": ..., "weight": {resource: n}}; invalid parts are ignored."""
    try:
        overriding = decode_json(override.encode())
    except msgspec.DecodeError:
        return base
    if not isinstance(overriding, dict):
        return base
    weights = overriding.get("weight")
    weight = weights.get(resource) if isinstance(weights, dict) else None
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        weight = base.weight if base else 0
    kind = overriding.get("type")
    most = kind == _MOST if kind in (_MOST, _LEAST) else bool(base and base.most)
    return FitStrategy(most, weight)
