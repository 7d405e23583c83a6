"""Plugin `binpack` of Volcano: fill nodes up, so that large pods find empty ones."""

from __future__ import annotations

from phalanx.plugin import CPU_COLUMN, MEMORY_COLUMN, Arguments, ClassRecord, FloatArray, Load, Plugin


class Binpack(Plugin):
    """Score: 100 x weight x (weighted mean of the used parts of the requested resources, with the pod placed)."""

    name = "binpack"
    arguments = ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources.*")

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("binpack.weight", 1, least=0)
        self._weights = {
            "cpu": arguments.integer("binpack.cpu", 1, least=0),
            "memory": arguments.integer("binpack.memory", 1, least=0),
        }
        for name in arguments.text("binpack.resources").split(","):
            if resource := name.strip():
                self._weights[resource] = arguments.integer(f"binpack.resources.{resource}", 1, least=0)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        columns = [
            (column, weight)
            for name, amount in pod_class.spec.requests
            if amount and (weight := self._weights.get(name, 0)) and (column := load.column(name)) is not None
        ]
        total = sum(weight for _, weight in columns)
        if not total or not self._weight:
            return 0.0
        if [column for column, _ in columns] == [CPU_COLUMN, MEMORY_COLUMN]:
            used = load.processor_and_memory()
            packed: FloatArray = (used[0] * columns[0][1] + used[1] * columns[1][1]) * (
                100.0 * self._weight / total
            )
            return packed
        parts = [load.fraction(column) * weight for column, weight in columns]
        result: FloatArray = sum(parts[1:], start=parts[0]) * (100.0 * self._weight / total)
        return result
