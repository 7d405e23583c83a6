"""ACK's ElasticQuotaTree: all quotas of a cluster in one object (docs/rules/coscheduling.md, 3.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountReader, AccountSpec, Amounts, Place
from phalanx.dialects.reader import Document, describe, show
from phalanx.model.account import Account, AccountKey, Tree, limits_of
from phalanx.model.gang import Problem
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import format_quantity

NAMESPACE = "kube-system"
_MAX_DEPTH = 32


def read_quota_tree(resource: ServedKind, document: Document) -> AccountSpec:
    """Decode one quota per node of an ElasticQuotaTree. A fault in a node is reported by its quota and affects its
    branch only."""
    reader = _TreeReader(resource, document)
    ref = reader.ref
    accounts: tuple[Account, ...] = ()
    if ref.namespace == NAMESPACE:
        accounts = reader.accounts()
    else:
        reader.warn("WrongNamespace", "metadata.namespace", ref.namespace, f"only a tree in {NAMESPACE} counts")
    problems = (*reader.problems, *reader.warnings)
    rank = reader.rank(0 if ref.namespace == NAMESPACE else 1)
    return AccountSpec(ref, Place(Tree.ACK, ""), rank, accounts, "DuplicateElasticQuotaTree", problems)


class _Node(msgspec.Struct):
    """One decoded node of a quota tree; `faults` make it unusable, `warnings` do not."""

    name: str
    field: str
    key: AccountKey
    parent: _Node | None
    minimum: Amounts = {}
    maximum: Amounts = {}
    namespaces: list[str] = []
    children: list[_Node] = []
    attributes: dict[str, str] = {}
    faults: list[Problem] = []
    warnings: list[Problem] = []


class _TreeReader(AccountReader):
    code = "InvalidElasticQuotaTree"

    def accounts(self) -> tuple[Account, ...]:
        root = self._node(self.spec.get("root"), "spec.root", None)
        if root is None:
            return ()
        nodes = list(_all(root))
        self._check_names(nodes)
        self._check_namespaces(nodes)
        for node in nodes:
            self._check_children(node)
        return tuple(map(self._account, nodes))

    def _node(self, stated: object, field: str, parent: _Node | None, depth: int = 0) -> _Node | None:
        """Decode a node of a quota tree; None for one without a usable name, which is a problem of the whole
        object."""
        if not isinstance(stated, Mapping):
            self.refuse(field, stated, "write a node such as {name: root, min: {cpu: 4}, max: {cpu: 8}}")
            return None
        name = stated.get("name")
        if not isinstance(name, str) or not name:
            self.refuse(f"{field}.name", name, "give every node a name; this node and its children are ignored")
            return None
        if depth >= _MAX_DEPTH:
            self.refuse(f"{field}.name", name, f"write at most {_MAX_DEPTH} levels; deeper nodes are ignored")
            return None
        node = _Node(name, field, AccountKey(Tree.ACK, name), parent, faults=[], warnings=[])
        node.minimum = self._node_amounts(node, stated.get("min"), f"{field}.min")
        node.maximum = self._node_amounts(node, stated.get("max"), f"{field}.max")
        node.namespaces = self._namespaces(node, stated.get("namespaces"))
        node.attributes = self._attributes(stated, parent)
        children = stated.get("children")
        if children is not None and not isinstance(children, list):
            self._fault(node, f"{field}.children is {show(children)}; write a list of nodes")
            children = []
        read = (
            self._node(child, f"{field}.children[{position}]", node, depth + 1)
            for position, child in enumerate(children or [])
        )
        node.children = [child for child in read if child is not None]
        return node

    def _node_amounts(self, node: _Node, value: object, field: str) -> Amounts:
        """Parse the amounts of a quota tree's node and record their problems there."""
        problems, warnings = self.problems, self.warnings
        self.problems, self.warnings = node.faults, node.warnings
        try:
            return self.amounts(value, field)
        finally:
            self.problems, self.warnings = problems, warnings

    def _namespaces(self, node: _Node, value: object) -> list[str]:
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return list(dict.fromkeys(value))
        self._fault(node, f"{node.field}.namespaces is {show(value)}; write a list of names")
        return []

    def _attributes(self, stated: Mapping[str, Any], parent: _Node | None) -> dict[str, str]:
        """Return a quota tree node's attributes; those of the root include the object's annotations."""
        attributes = stated.get("attributes")
        texts = dict(self.annotations) if parent is None else {}
        for key, text in attributes.items() if isinstance(attributes, Mapping) else ():
            if text is not None:
                texts[str(key)] = text if isinstance(text, str) else msgspec.json.encode(text).decode()
        return texts

    # Checks between nodes.

    def _check_names(self, nodes: list[_Node]) -> None:
        first: dict[str, _Node] = {}
        for node in nodes:
            known = first.setdefault(node.name, node)
            if known is not node:
                node.key = AccountKey(Tree.ACK, f"{node.name} ({node.field})")
                message = (
                    f"{node.field} is called {quoted(node.name)}, as {known.field} is; give it a name of its own"
                )
                self._fault(node, message, "DuplicateQuotaName")

    def _check_namespaces(self, nodes: list[_Node]) -> None:
        first: dict[str, _Node] = {}
        for node in nodes:
            if node.namespaces and node.children:
                message = (
                    f"{node.field}.namespaces belong to a leaf; their pods are charged to "
                    f"{quoted(node.name)} itself"
                )
                self._warn_node(node, message, "NamespacesAboveLeaf")
            for namespace in list(node.namespaces):
                known = first.setdefault(namespace, node)
                if known is not node:
                    node.namespaces.remove(namespace)
                    message = (
                        f"{node.field}.namespaces has {quoted(namespace)}, which {known.field} has "
                        "already and keeps; "
                        "remove it from one of them"
                    )
                    self._warn_node(node, message, "NamespaceClaimedTwice")

    def _check_children(self, node: _Node) -> None:
        total: Amounts = {}
        for child in node.children:
            for name, amount in child.minimum.items():
                total[name] = total.get(name, 0) + amount
        for name, amount in sorted(total.items()):
            own = node.minimum.get(name, 0)
            if amount > own:
                have, wanted = format_quantity(own, name), format_quantity(amount, name)
                message = (
                    f"the children of {node.field} ({quoted(node.name)}) have min.{name} "
                    f"{wanted} together, more than "
                    f"its own {have}; raise it, or lower theirs"
                )
                self._warn_node(node, message, "ChildrenMinExceedsMin")

    def _account(self, node: _Node) -> Account:
        self.warnings = []
        deserved = self.below(node.minimum, f"{node.field}.min", node.maximum, f"{node.field}.max", "MinExceedsMax")
        return Account(
            key=node.key,
            uid=self.ref.uid,
            label=f"ElasticQuotaTree node {node.name}",
            source=self.ref,
            parent=node.parent.key if node.parent is not None else None,
            parental=bool(node.children) and not node.namespaces,
            deserved=deserved,
            capability=limits_of(node.maximum),
            namespaces=tuple(sorted(node.namespaces)),
            budget=self.budget(node.attributes, node.field),
            min_run_time=self.min_run_time(node.attributes, node.field),
            eviction_rate=self.eviction_rate(node.attributes, node.field),
            self_protection=self.self_protection(node.attributes, node.field),
            max_protection=self.max_protection(node.attributes, node.field),
            created=self.created,
            problem=node.faults[0] if node.faults else None,
            warnings=(*node.warnings, *self.warnings),
        )

    def _fault(self, node: _Node, message: str, code: str = "") -> None:
        node.faults.append(Problem(code or self.code, f"{describe(self.ref)}: {message}"))

    def _warn_node(self, node: _Node, message: str, code: str) -> None:
        node.warnings.append(Problem(code, f"{describe(self.ref)}: {message}"))


def _all(node: _Node) -> Iterator[_Node]:
    """Yield the nodes of a quota tree from the root down, depth first."""
    yield node
    for child in node.children:
        yield from _all(child)
