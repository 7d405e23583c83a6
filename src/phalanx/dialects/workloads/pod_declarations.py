"""Gang declaration of a pod, from all that can declare it: its labels and annotations, and its owner."""

from __future__ import annotations

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.declaration import Declaration, GangDeclarations
from phalanx.dialects.gangs.naming import InvalidMinimum
from phalanx.dialects.gangs.stated_values import is_legal_minimum
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.shared_values import SharedValues
from phalanx.dialects.workloads.grouping import WorkloadGrouping


class PodDeclarations:
    """Combination of the dialects' declarations with the rules for the owners of pods."""

    def __init__(
        self,
        stated: GangDeclarations,
        workloads: WorkloadGrouping,
        options: DialectOptions,
        scheduler_names: frozenset[str],
    ) -> None:
        self._stated = stated
        self._workloads = workloads
        self._options = options
        self._scheduler_names = scheduler_names
        self._shared = SharedValues[Declaration]()

    def declare(self, pod: PodObject) -> Declaration | None:
        """Return the gang declaration of a pod; None for a pod without a gang. Equal ones are one object."""
        declaration = self._stated.declare(pod)
        if declaration is None:
            declaration = self._workloads.declare(pod)
        else:
            declaration = self._workloads.with_part(pod, declaration)
        if declaration is None or self._is_regular(declaration):
            return None
        if declaration.queue is not None and pod.spec.scheduler_name not in self._scheduler_names:
            # The creator's access to the queue was never verified: the pod belongs to another scheduler.
            declaration = msgspec.structs.replace(declaration, queue=None)
        return self._shared[declaration]

    def _is_regular(self, declaration: Declaration) -> bool:
        """Return whether the policy treats pods with this illegal minimum as pods without a gang."""
        return (
            self._options.legacy_invalid_min == "regular"
            and declaration.naming.invalid_minimum is InvalidMinimum.POLICY
            and declaration.minimum is not None
            and not is_legal_minimum(declaration.minimum.value)
        )
