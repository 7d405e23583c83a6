"""Warnings about ElasticQuotas above the ResourceQuotas of their namespace (KEP 9)."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.kube.events import EventRecorder
from phalanx.model.account import Account, Tree
from phalanx.model.text.quantity import format_quantity
from phalanx.status.event_publisher import object_reference

CODE = "QuotaExceedsResourceQuota"


class QuotasAboveHard:
    """Warnings, once per change, about ElasticQuotas whose min or max exceeds a ResourceQuota of their namespace.

    The rest of such an amount can never be used. A missing max is ignored.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._told: dict[str, str] = {}

    def warn_of_changes(self) -> None:
        """Compare all ElasticQuotas with ResourceQuotas again; without ResourceQuotas this costs nothing."""
        if not self._state.resource_quotas:
            self._told.clear()
            return
        found: dict[str, str] = {}
        for record in self._state.ledger.accounts.values():
            spec = record.spec
            if spec is None or spec.key.tree is not Tree.ELASTIC_QUOTA or spec.source is None:
                continue
            above = self._above(spec, spec.source.namespace)
            if not above:
                continue
            note = f"{'; '.join(above)}: the rest can never be used; lower it, or raise the ResourceQuota"
            found[spec.uid] = note
            if self._told.get(spec.uid) != note:
                about = object_reference(spec.source)
                self._recorder.record(about, type="Warning", reason=CODE, action="Validating", note=note, once=True)
        self._told = found

    def _above(self, spec: Account, namespace: str) -> list[str]:
        """Return one phrase per resource whose min or max exceeds a ResourceQuota, max before min."""
        phrases: list[str] = []
        hard = self._hard(namespace)
        stated = [("min", name, amount) for name, amount in spec.deserved or ()]
        named = {name for name, _ in spec.capability or ()}
        stated = [entry for entry in stated if entry[1] not in named]
        for field, name, amount in [("max", name, amount) for name, amount in spec.capability or ()] + stated:
            if name in hard and amount > hard[name][0]:
                least, quota = hard[name]
                phrases.append(
                    f"spec.{field} is {name} {format_quantity(amount, name)}, but ResourceQuota "
                    f"{namespace}/{quota} allows at most {format_quantity(least, name)}"
                )
        return phrases

    def _hard(self, namespace: str) -> dict[str, tuple[int, str]]:
        """Return, by resource, the lowest hard limit and its ResourceQuota, over the quotas that count every
        pod."""
        found: dict[str, tuple[int, str]] = {}
        for quota in self._state.resource_quotas.get(namespace, {}).values():
            for key, amount in quota.hard if not quota.scoped else ():
                if key.startswith(("limits.", "count/")):
                    continue
                name = key.removeprefix("requests.")
                found[name] = min(found.get(name, (amount, quota.name)), (amount, quota.name))
        return found
