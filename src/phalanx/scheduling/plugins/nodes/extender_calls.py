"""Requests to an extender and their transport: an external service (Volcano, plugins/extender).

Documents have Volcano's fields as far as the scheduler has their values. Amounts are floats: CPU in millicores,
memory in bytes, all other resources in thousandths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from phalanx.model.resources import CPU, MEMORY, Requests, scale_of
from phalanx.plugin import AccountRecord, ClassRecord, GangRecord, IntArray, NodeTable

Document = Mapping[str, Any]


class CallError(Exception):
    """The extender could not be called, or did not answer in time or in JSON."""


class Caller(Protocol):
    """Function that posts a JSON document to a verb of the extender and returns the answer; raises CallError."""

    def __call__(self, verb: str, document: Document) -> Document: ...


class Link:
    """Connection to an extender within one period.

    Answers are cached. After a failure the extender is not called again in the period, so that a hanging extender
    costs one timeout instead of one per call.
    """

    def __init__(self) -> None:
        self.caller: Caller | None = None
        self.failed = ""
        self._answers: dict[object, Document] = {}

    def renew(self) -> None:
        self.failed = ""
        self._answers.clear()

    @property
    def busy(self) -> bool:
        """True if the extender was called in this period."""
        return bool(self._answers or self.failed)

    def ask(self, verb: str, key: object, document: Callable[[], Document]) -> Document | None:
        """Return the extender's answer to a call with this `key`; None after a failure, or without a caller."""
        answer = self._answers.get((verb, key))
        if answer is not None or self.caller is None or self.failed:
            return answer
        try:
            answer = self._answers[verb, key] = self.caller(verb, document())
        except CallError as error:
            self.failed = str(error)
        return answer


def task_of(pod_class: ClassRecord) -> Document:
    """Return the JSON document that describes any pod of a class to the extender. It has no name, because the
    answer applies to all of them."""
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
                "taints": [
                    {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints
                ],
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
    by_name = dict(amounts)
    scalars = {name: 1000.0 * amount for name, amount in by_name.items() if name not in (CPU, MEMORY)}
    return {
        "MilliCPU": float(by_name.get(CPU, 0)),
        "Memory": float(by_name.get(MEMORY, 0)),
        "ScalarResources": scalars,
    }


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if scale_of(name) != 1 else str(amount)
