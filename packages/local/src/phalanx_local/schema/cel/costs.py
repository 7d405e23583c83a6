"""Maximum cost of a CEL expression, estimated from its text and the bounds in a schema.

The API server rejects validation rules whose estimate is too high, so this estimate must be equal to its estimate.
Costs are the published ones (1 for reading a name, 0.1 per character of a string that is read, ...). Unbounded
values are bounded by the size of a request, and every step of a comprehension counts. Sizes and costs are ranges;
sums stop at 2**64 - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from phalanx_local.schema.cel.compiler import FUNCTIONS, CelProgram, dotted
from phalanx_local.schema.cel.functions import Overload
from phalanx_local.schema.cel.macros import COMPREHENSIONS
from phalanx_local.schema.cel.prices import LIST, LOOPS, MAP, NAMED_LIMIT, RULES, WALK, compared
from phalanx_local.schema.cel.ranges import LIMIT, ONE, UNKNOWN, ZERO, Range, fixed
from phalanx_local.schema.cel.syntax import CallExpr, Ident, Index, ListOf, Literal, MapOf, Node, Select
from phalanx_local.schema.cel.types import DYN, Type

_SCALARS: Final = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))

Path = tuple[str, ...]


def estimated_cost(program: CelProgram, declared: Type) -> int:
    """Return the maximum cost of one evaluation of a CEL expression whose ``self`` and ``oldSelf`` have the
    schema's type."""
    return _Coster(program.kinds, declared).cost(program.tree).high


@dataclass(frozen=True, slots=True)
class _Entries:
    """Range of the sizes of a list's or map's keys and values."""

    key: Range
    value: Range

    def union(self, other: _Entries | None) -> _Entries | None:
        return None if other is None else _Entries(self.key | other.key, self.value | other.value)


@dataclass(slots=True)
class _Local:
    """Variable that a CEL comprehension declares, with the sizes of its values."""

    path: Path
    size: Range | None = None
    entries: _Entries | None = None


@dataclass(slots=True)
class _Coster:
    kinds: dict[int, Type]
    declared: Type
    locals: dict[str, _Local] = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)
    sizes: dict[int, Range] = field(default_factory=dict)
    entries: dict[int, _Entries] = field(default_factory=dict)
    #: Generated nodes, stored so that the ids which refer to them remain unique.
    generated: list[Node] = field(default_factory=list)

    # sizes and paths of values ------------------------------------------------------------------------------

    def kind(self, node: Node) -> Type:
        return self.kinds.get(id(node), DYN)

    def path(self, node: Node) -> Path:
        """Return the path from a variable to a value, through fields, ``@items``, ``@keys`` and ``@values``."""
        if isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].path
        return self.paths.get(id(node), ())

    def bound(self, path: Path) -> Range | None:
        """Return the range of sizes that the schema allows at a path."""
        if not path:
            return None
        current: Type = self.declared
        for step in path[1:]:
            if step in ("@items", "@values"):
                if current.kind not in ("list", "map") or current.item is None:
                    return None
                current = current.item
            elif step == "@keys":
                if current.kind != "map":
                    return None
                current = Type("string")
            else:
                found = current.fields.get(step)
                if found is None:
                    return None
                current = found[1]
        return Range(0, current.max_elements)

    def size(self, node: Node) -> Range | None:
        """Return the range of a value's size: its characters, items or entries; None if unknown."""
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, Literal):
            return fixed(len(node.value) if isinstance(node.value, str | bytes) else 1)
        if isinstance(node, ListOf):
            return fixed(len(node.items))
        if isinstance(node, MapOf):
            return fixed(len(node.entries))
        bound = self.bound(self.path(node))
        if bound is not None:
            self.sizes[id(node)] = bound
            return bound
        kind = self.kind(node)
        while kind.kind == "optional_type":
            kind = kind.item or DYN
        if kind.kind in _SCALARS:
            return ONE
        if isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].size
        return None

    def sized(self, node: Node) -> Range:
        return self.size(node) or UNKNOWN

    def entry_sizes(self, node: Node) -> _Entries | None:
        known = self.entries.get(id(node))
        if known is None and isinstance(node, Ident) and node.name in self.locals:
            return self.locals[node.name].entries
        return known

    def item_size(self, node: Node) -> Range:
        """Return the range of the sizes of a list's items."""
        path = self.path(node)
        return (self.bound((*path, "@items")) if path else None) or UNKNOWN

    # costs ------------------------------------------------------------------------------------------------

    def cost(self, node: Node) -> Range:
        if isinstance(node, Literal):
            return ZERO
        if isinstance(node, Ident):
            self.paths[id(node)] = self.path(node) if node.name in self.locals else (node.name,)
            return ONE
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Index):
            return self._index(node)
        if isinstance(node, ListOf):
            return self._list(node)
        if isinstance(node, MapOf):
            return self._map(node)
        return self._call(node)

    def _select(self, node: Select) -> Range:
        if self.kind(node).kind == "type" and dotted(node):
            return ONE
        total = self.cost(node.operand)
        if node.optional:
            return total + ONE
        self.paths[id(node)] = (*self.path(node.operand), node.field)
        return total + ONE if self.kind(node.operand).kind in ("map", "object") else total

    def _index(self, node: Index) -> Range:
        total = self.cost(node.operand) + self.cost(node.key) + ONE
        kind = self.kind(node.operand).kind
        if node.optional or kind == "optional_type":
            return total
        inside = self.entry_sizes(node.operand)
        self.paths[id(node)] = (*self.path(node.operand), "@items" if kind == "list" else "@values")
        size = inside.value if inside is not None else self.size(node)
        if size is not None:
            self.sizes[id(node)] = size
        return total

    def _list(self, node: ListOf) -> Range:
        total, inside = LIST, None
        for _, item in node.items:
            total += self.cost(item)
            size = self.sized(item)
            inside = size if inside is None else inside | size
        self.entries[id(node)] = _Entries(ONE, inside or ZERO)
        return total

    def _map(self, node: MapOf) -> Range:
        total, inside = MAP, None
        for _, key, value in node.entries:
            total += self.cost(key) + self.cost(value)
            sizes = _Entries(self.sized(key), self.sized(value))
            inside = sizes if inside is None else inside.union(sizes)
        self.entries[id(node)] = inside or _Entries(ZERO, ZERO)
        return total

    def _call(self, node: CallExpr) -> Range:
        special = {
            "has": self._has,
            "dyn": self._dyn,
            "_&&_": self._logic,
            "_||_": self._logic,
            "_?_:_": self._choice,
            "sortBy": self._sort_by,
            "optMap": self._opt_map,
            "optFlatMap": self._opt_map,
        }.get(node.name)
        if special is not None:
            return special(node)
        if node.target is not None and (node.name, len(node.args)) in COMPREHENSIONS:
            return self._comprehension(node)
        return self._function(node)

    def _has(self, node: CallExpr) -> Range:
        arg = node.args[0]
        return self.cost(arg.operand) if isinstance(arg, Select) else ZERO

    def _dyn(self, node: CallExpr) -> Range:
        total = self.cost(node.args[0]) + ONE
        self._same_sizes(node, node.args[0])
        return total

    def _same_sizes(self, node: Node, source: Node) -> None:
        size, inside = self.size(source), self.entry_sizes(source)
        if size is not None:
            self.sizes[id(node)] = size
        if inside is not None:
            self.entries[id(node)] = inside

    def _logic(self, node: CallExpr) -> Range:
        left, right = (self.cost(arg) for arg in node.args)
        return Range(left.low, (left + right).high)

    def _choice(self, node: CallExpr) -> Range:
        condition, chosen, other = (self.cost(arg) for arg in node.args)
        self._either(node, node.args[1], node.args[2])
        self.sizes[id(node)] = self.sized(node.args[1]) | self.sized(node.args[2])
        return condition + (chosen | other)

    def _either(self, node: Node, left: Node, right: Node) -> None:
        inside = self.entry_sizes(left)
        both = inside.union(self.entry_sizes(right)) if inside is not None else None
        if both is not None:
            self.entries[id(node)] = both

    def _bound_to(self, name: str, local: _Local, body: Node) -> Range:
        """Return the cost of an expression in which `name` is a local variable."""
        before = self.locals.get(name)
        self.locals[name] = local
        total = self.cost(body)
        # Sizes that depend on the variable must be computed while it is in scope.
        self.size(body)
        if before is None:
            del self.locals[name]
        else:
            self.locals[name] = before
        return total

    def _opt_map(self, node: CallExpr) -> Range:
        assert node.target is not None
        target = self.cost(node.target)
        name = node.args[0]
        assert isinstance(name, Ident)
        # This is a conditional: a presence test, then the expression with the bound value, or none.
        bound = LIST + target + ONE + self._bound_to(name.name, _Local(()), node.args[1])
        chosen = bound + ONE if node.name == "optMap" else bound
        return target + ONE + (chosen | ONE)

    def _sort_by(self, node: CallExpr) -> Range:
        assert node.target is not None
        total = LIST + self.cost(node.target)
        local = _Local(self.path(node.target), self.size(node.target), self.entry_sizes(node.target))
        keys = CallExpr(node.position, "map", node.args, Ident(node.position, "@input"))
        self.kinds[id(keys.target)] = self.kind(node.target)
        self.generated.append(keys)
        mapped = self._bound_to("@input", local, keys)
        count = self.size(keys) or UNKNOWN
        key_kind = self.kind(node.args[1]).kind
        sort = count * count * (2 + WALK * (key_kind in ("string", "bytes"))) + ONE + LIST
        return total + ONE + mapped + sort

    def _comprehension(self, node: CallExpr) -> Range:
        """Return the cost of a comprehension macro as its loop: initial value, condition and step per item, and
        result."""
        assert node.target is not None
        total = self.cost(node.target)
        count = COMPREHENSIONS[(node.name, len(node.args))]
        names = [arg.name for arg in node.args[:count] if isinstance(arg, Ident)]
        before = {name: self.locals.get(name) for name in names}
        self._enter(names, node.target)
        costs = [self.cost(arg) for arg in node.args[count:]]
        inside = _Entries(ONE, self.sized(node.args[-1]) if node.name != "filter" else self._variable(names[-1]))
        for name, local in before.items():
            if local is None:
                self.locals.pop(name, None)
            else:
                self.locals[name] = local
        rounds = self.sized(node.target)
        start, each, result = LOOPS[node.name](costs)
        total += start + result + rounds * each
        if node.name in ("all", "exists", "exists_one", "existsOne"):
            self.sizes[id(node)] = ONE
        else:
            self.sizes[id(node)] = rounds
            if not node.name.startswith("transformMap"):
                self.entries[id(node)] = _Entries(ONE, inside.value | ZERO)
        return total

    def _enter(self, names: list[str], holder: Node) -> None:
        """Add the variables of a comprehension to the scope."""
        path, inside = self.path(holder), self.entry_sizes(holder)
        is_list = self.kind(holder).kind == "list"
        key = _Local((*path, "@indices" if is_list else "@keys"), inside.key if inside else None)
        value = _Local((*path, "@items" if is_list else "@values"), inside.value if inside else None)
        if len(names) == 2:
            self.locals[names[0]], self.locals[names[1]] = key, value
        else:
            self.locals[names[0]] = value if is_list else key

    def _variable(self, name: str) -> Range:
        local = self.locals[name]
        return self.bound(local.path) or local.size or UNKNOWN

    def _function(self, node: CallExpr) -> Range:
        target, name = node.target, node.name
        space = dotted(target) if target is not None else ""
        if space and f"{space}.{name}" in FUNCTIONS and id(target) not in self.kinds:
            name, target = f"{space}.{name}", None
        operands = ([] if target is None else [target]) + list(node.args)
        total = ZERO
        for operand in operands:
            total += self.cost(operand)
        kinds = tuple(self.kind(operand) for operand in operands)
        estimate: Range | None = None
        result: Range | None = None
        for over in FUNCTIONS.get(name, ()):
            if over.receiver == (target is not None) and over.accepts(kinds):
                cost, size = self._overload(name, over, node, target, operands)
                estimate = cost if estimate is None else estimate | cost
                result = size if result is None else (result | size if size is not None else result)
        if name == "@in":
            estimate, result = self._membership(node, kinds), None
        if result is None:
            result = self.size(node)
        if result is not None:
            self.sizes[id(node)] = result
        return total + (estimate or ONE)

    def _membership(self, node: CallExpr, kinds: tuple[Type, ...]) -> Range:
        walked = self.sized(node.args[1])
        return {"list": walked, "map": ONE}.get(kinds[1].kind, walked | ONE)

    def _overload(
        self, name: str, over: Overload, node: CallExpr, target: Node | None, operands: list[Node]
    ) -> tuple[Range, Range | None]:
        """Return the cost of a function overload without the cost of its operands, and the size of its result."""
        sizes = [self.sized(operand) for operand in operands]
        first = over.wanted[0].partition("(")[0] if over.wanted else ""
        if name == "_+_" and first in ("string", "bytes", "list"):
            self._either(node, operands[0], operands[1])
            joined = sizes[0] + sizes[1]
            return (ONE if first == "list" else joined * WALK), joined
        if name in ("_==_", "_!=_"):
            return self._equality(name, node, sizes), None
        if name in ("_<_", "_<=_", "_>_", "_>=_"):
            return (compared(sizes) if over.wanted[0] in ("string", "bytes") else ONE), None
        if name in ("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"):
            return self._search(operands[0], sizes[0]), None
        if name == "join":
            return self._join(operands, sizes)
        if name == "split":
            return sizes[0] * (2 * WALK), Range(0, _number(operands, 2, sizes[0].high))
        if name in ("slice", "reverse", "flatten", "distinct", "sort", "lists.range"):
            return self._listed(name, operands, sizes)
        rule = RULES.get(name)
        return rule(sizes, over) if rule is not None else (ONE, None)

    def _equality(self, name: str, node: CallExpr, sizes: list[Range]) -> Range:
        left, right = (self.kind(arg) for arg in node.args)
        if name == "_==_" and left.kind == right.kind:
            if left.kind in ("ip", "cidr", "quantity", "semver"):
                return ONE
            if left.kind == "format":
                return Range(1, NAMED_LIMIT) * WALK
            if left.kind == "url":
                known = self.size(node.args[1])
                return Range(1, known.high if known is not None else 1) * WALK
        return compared(sizes)

    def _search(self, holder: Node, size: Range) -> Range:
        kind = self.kind(holder)
        if kind.kind != "list":
            return size * WALK
        item_cost = ONE
        if kind.item is not None and kind.item.kind in ("string", "bytes"):
            item_cost += self.item_size(holder) * WALK
        return size * item_cost

    def _join(self, operands: list[Node], sizes: list[Range]) -> tuple[Range, Range]:
        total = sizes[0] * self.item_size(operands[0])
        if len(operands) > 1:
            total += sizes[1] * Range(max(sizes[0].low - 1, 0), max(sizes[0].high - 1, 0))
        return total * WALK, total

    def _listed(self, name: str, operands: list[Node], sizes: list[Range]) -> tuple[Range, Range]:
        """Return cost and size of a function that returns a list; some functions compare all items with each
        other."""
        size, factor = sizes[0], 1.0
        if name == "lists.range":
            size = fixed(_number(operands, 0, LIMIT))
        elif name == "slice":
            size = fixed(max(_number(operands, 2, size.high) - _number(operands, 1, 0), 0))
        elif name == "flatten":
            factor = float(_number(operands, 1, LIMIT)) if len(operands) > 1 else 1.0
        elif name in ("distinct", "sort"):
            item = self.kind(operands[0]).item or DYN
            size, factor = size * size, 2.0
            if name == "sort" and item.kind in ("string", "bytes"):
                factor += WALK
        return size * factor + ONE + LIST, size


def _number(operands: list[Node], place: int, default: int) -> int:
    """Return the value of a constant integer operand; the default if the operand is absent or no constant."""
    operand = operands[place] if place < len(operands) else None
    if isinstance(operand, Literal) and isinstance(operand.value, int):
        return operand.value % 2**64
    return default
