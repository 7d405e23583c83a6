"""What an extender is asked, and how it is reached: somebody outside who has a say (Volcano, plugins/extender).

Documents have the fields of Volcano's own, as far as the scheduler knows them; amounts are floats, CPU in
thousandths, memory in bytes, everything else in thousandths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from phalanx.model.resources import CPU, MEMORY, Requests, scale_of
from phalanx.plugin import AccountRecord, ClassRecord, GangRecord, IntArray, NodeTable

Document = Mapping[str, Any]


class CallError(Exception):
    """The extender could not be asked, or did not answer in time or in JSON."""


class Caller(Protocol):
    """Posts a document to a verb and returns the answer; raises CallError."""

    def __call__(self, verb: str, document: Document) -> Document: ...


class Link:
    """One extender as of one period: answers are remembered, and after a failure it is not asked again before the
    next, so that an extender that hangs costs one timeout and not one per question."""

    def __init__(self) -> None:
        self.caller: Caller | None = None
        self.failed = ""
        self._answers: dict[object, Document] = {}

    def renew(self) -> None:
        self.failed = ""
        self._answers.clear()

    @property
    def busy(self) -> bool:
        """Whether it was asked in this period."""
        return bool(self._answers or self.failed)

    def ask(self, verb: str, key: object, document: Callable[[], Document]) -> Document | None:
        """The answer to a question, which `key` identifies; None while the extender fails, or there is none."""
        found = self._answers.get((verb, key))
        if found is not None or self.caller is None or self.failed:
            return found
        try:
            found = self._answers[verb, key] = self.caller(verb, document())
        except CallError as error:
            self.failed = str(error)
        return found


def task_of(pod_class: ClassRecord) -> Document:
    """Any pod of a class: it has no name, as the answer holds for all of them."""
    requests = {name: _quantity(name, amount) for name, amount in pod_class.spec.requests}
    spec = {
        "nodeSelector": dict(pod_class.spec.node_selector),
        "containers": [{"name": "all", "resources": {"requests": requests}}],
    }
    return {"Resreq": _resource(pod_class.spec.requests), "Pod": {"spec": spec}}


def node_of(nodes: NodeTable, row: int) -> Document:
    node = nodes.nodes[row]
    assert node is not None
    return {
        "Name": node.name,
        "Node": {
            "metadata": {"name": node.name, "uid": node.uid, "labels": dict(node.labels)},
            "spec": {
                "unschedulable": node.unschedulable,
                "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints],
            },
            "status": {"allocatable": {name: _quantity(name, amount) for name, amount in node.allocatable}},
        },
        "Allocatable": _amounts(nodes, nodes.allocatable[:, row]),
        "Used": _amounts(nodes, nodes.used[:, row]),
        "Idle": _amounts(nodes, nodes.idle[:, row]),
        "Releasing": _amounts(nodes, nodes.releasing[:, row]),
    }


def job_of(gang: GangRecord) -> Document:
    spec = gang.spec
    return {
        "UID": gang.key.path,
        "Name": gang.key.name,
        "Namespace": gang.key.namespace,
        "Queue": spec.queue if spec is not None else "",
        "MinAvailable": spec.min_member if spec is not None else 0,
        "Priority": (spec.priority or 0) if spec is not None else 0,
        "MinResources": _resource(spec.min_resources or ()) if spec is not None else {},
    }


def queue_of(account: AccountRecord) -> Document:
    return {
        "UID": account.key.name,
        "Name": account.key.name,
        "Weight": account.spec.weight if account.spec is not None else 1,
        "Allocated": _resource(tuple(sorted(account.used.items()))),
    }


def _amounts(nodes: NodeTable, amounts: IntArray) -> Document:
    named = zip(nodes.space.names, amounts.tolist(), strict=True)
    return _resource(tuple((name, amount) for name, amount in named if amount))


def _resource(amounts: Requests) -> Document:
    found = dict(amounts)
    scalars = {name: 1000.0 * amount for name, amount in found.items() if name not in (CPU, MEMORY)}
    return {"MilliCPU": float(found.get(CPU, 0)), "Memory": float(found.get(MEMORY, 0)), "ScalarResources": scalars}


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if scale_of(name) != 1 else str(amount)
