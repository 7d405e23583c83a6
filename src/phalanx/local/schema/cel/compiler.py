"""From a tree to a Python function, checking types on the way.

A compiled expression is a closure over an environment (a dict of variables). Static types catch mistakes when a
definition is created; where a type is ``dyn`` the choice between overloads is made at run time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from phalanx.local.schema.cel import macros
from phalanx.local.schema.cel.errors import CompileError, EvalError
from phalanx.local.schema.cel.functions import FUNCTIONS, Overload
from phalanx.local.schema.cel.syntax import Call, Ident, Index, ListOf, Literal, MapOf, Node, Select, parse
from phalanx.local.schema.cel.types import (
    BOOL,
    DYN,
    TYPE,
    Type,
    assignable,
    joined,
    list_of,
    optional_of,
)
from phalanx.local.schema.cel.values import (
    NONE,
    Option,
    TypeName,
    equal,
    kind_of,
    parse_duration,
    parse_timestamp,
)

Env = dict[str, Any]
Run = Callable[[Env], Any]
Scope = dict[str, Type]

#: Names that stand for types.
TYPE_NAMES: Final = frozenset(
    ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "dyn")
)
_RUNTIME_TYPES: Final = {"object": "map"}


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression: what it evaluates to, and which variables it reads."""

    run: Run
    type: Type
    names: frozenset[str]
    source: str


def compile_text(source: str, scope: Scope) -> Program:
    """Reads and checks an expression; CompileError tells what is wrong and where."""
    tree = parse(source)
    names: set[str] = set()
    try:
        run, kind = compile_node(tree, dict(scope), names)
    except RecursionError:
        raise CompileError("expression recursion limit exceeded") from None
    return Program(run, kind, frozenset(names & scope.keys()), source)


def compile_node(node: Node, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    """The function and the static type of a tree."""
    if isinstance(node, Literal):
        value = node.value
        return (lambda env: value), _literal_type(value)
    if isinstance(node, Ident):
        return _ident(node, scope, names)
    if isinstance(node, Select):
        return _select(node, scope, names)
    if isinstance(node, Index):
        return _index(node, scope, names)
    if isinstance(node, ListOf):
        return _list(node, scope, names)
    if isinstance(node, MapOf):
        return _map(node, scope, names)
    expanded = macros.expand(node, scope, names, compile_node)
    return expanded if expanded is not None else _call(node, scope, names)


def _literal_type(value: Any) -> Type:
    return Type(kind_of(value))


def _ident(node: Ident, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    name = node.name
    if name in scope:
        names.add(name)
        return (lambda env: env[name]), scope[name]
    if name in TYPE_NAMES:
        value = TypeName(name)
        return (lambda env: value), TYPE
    raise CompileError(f"undeclared reference to '{name}' (in container '')", node.position)


def dotted(node: Node) -> str:
    """The dotted name that a chain of selections spells, or ""."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.optional:
        head = dotted(node.operand)
        return f"{head}.{node.field}" if head else ""
    return ""


_WELL_KNOWN: Final = {
    "google.protobuf.Timestamp": TypeName("google.protobuf.Timestamp"),
    "google.protobuf.Duration": TypeName("google.protobuf.Duration"),
}


def _select(node: Select, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    whole = dotted(node)
    if whole in _WELL_KNOWN:
        value = _WELL_KNOWN[whole]
        return (lambda env: value), TYPE
    operand, kind = compile_node(node.operand, scope, names)
    optional = node.optional or kind.kind == "optional_type"
    inner = (kind.item or DYN) if kind.kind == "optional_type" else kind
    key, below = field_of(inner, node.field, node.position)
    convert = converter(below)
    if optional:

        def maybe(env: Env) -> Any:
            holder = operand(env)
            if isinstance(holder, Option):
                if not holder.present:
                    return NONE
                holder = holder.value
            if not isinstance(holder, dict) or key not in holder:
                return NONE
            return Option(True, convert(holder[key]) if convert else holder[key])

        return maybe, optional_of(below)

    def read(env: Env) -> Any:
        holder = operand(env)
        if type(holder) is dict and key in holder:
            value = holder[key]
            return convert(value) if convert else value
        if isinstance(holder, dict):
            raise EvalError(f"no such key: {node.field}")
        if isinstance(holder, Option):
            if not holder.present or key not in holder.value:
                return NONE
            return Option(True, holder.value[key])
        raise EvalError("no such overload")

    return read, below


def field_of(kind: Type, field: str, position: int) -> tuple[str, Type]:
    """A field's name in JSON and its type; CompileError when the type has no such field."""
    if kind.kind == "object":
        if field not in kind.fields:
            raise CompileError(f"undefined field '{field}'", position)
        return kind.fields[field]
    if kind.kind in ("map", "dyn"):
        return field, kind.item or DYN
    raise CompileError(f"type '{kind}' does not support field selection", position)


def converter(kind: Type) -> Callable[[Any], Any] | None:
    """How a JSON value becomes a value of the type; None when it is one already."""
    return _CONVERTERS.get(kind.convert)


def _to_double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _to_timestamp(value: Any) -> Any:
    return parse_timestamp(value) if isinstance(value, str) else value


def _to_date(value: Any) -> Any:
    return parse_timestamp(value + "T00:00:00Z") if isinstance(value, str) else value


def _to_duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _to_bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        raise EvalError("illegal base64 data") from None


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "double": _to_double,
    "timestamp": _to_timestamp,
    "date": _to_date,
    "duration": _to_duration,
    "bytes": _to_bytes,
}


def _index(node: Index, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    operand, kind = compile_node(node.operand, scope, names)
    key, key_kind = compile_node(node.key, scope, names)
    inner = (kind.item or DYN) if kind.kind == "optional_type" else kind
    if inner.kind not in ("list", "map", "dyn"):
        raise _no_overload("_[_]", (kind, key_kind), node.position)
    allowed = ("int", "uint", "double") if inner.kind == "list" else _keys_of(inner)
    if inner.kind != "dyn" and key_kind.kind not in (*allowed, "dyn"):
        raise _no_overload("_[_]", (kind, key_kind), node.position)
    below = inner.item or DYN
    convert = converter(below)

    def read(env: Env) -> Any:
        holder = operand(env)
        if isinstance(holder, Option):
            if not holder.present:
                return NONE
            found = lookup(holder.value, key(env))
        else:
            found = lookup(holder, key(env))
        if not found.present:
            if node.optional or isinstance(holder, Option):
                return NONE
            wanted = key(env)
            if isinstance(holder, list):
                raise EvalError(f"index out of bounds: {wanted}")
            raise EvalError(f"no such key: {wanted}")
        value = convert(found.value) if convert else found.value
        return Option(True, value) if node.optional or isinstance(holder, Option) else value

    if node.optional or kind.kind == "optional_type":
        return read, optional_of(below)
    return read, below


def _keys_of(kind: Type) -> tuple[str, ...]:
    """The kinds of values that may be looked up in a map."""
    if kind.key_kind == "dyn":
        return ("string", "bool", "int", "uint", "double")
    return ("int", "uint", "double") if kind.key_kind in ("int", "uint") else (kind.key_kind,)


def lookup(holder: Any, key: Any) -> Option:
    """The entry of a list or map, if there is one; EvalError when the value has no entries."""
    if isinstance(holder, list):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise EvalError("no such overload")
        return Option(True, holder[key]) if 0 <= key < len(holder) else NONE
    if isinstance(holder, dict):
        try:
            for known in (key,) if isinstance(key, str) else (k for k in holder if equal(k, key)):
                if known in holder:
                    return Option(True, holder[known])
        except TypeError:
            raise EvalError("no such overload") from None
        return NONE
    raise EvalError("no such overload")


def _list(node: ListOf, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    items: list[tuple[bool, Run]] = []
    element: Type | None = None
    for optional, item in node.items:
        run, kind = compile_node(item, scope, names)
        if optional:
            if kind.kind not in ("optional_type", "dyn"):
                raise CompileError(f"expected type 'optional_type({kind})' but found '{kind}'", item.position)
            kind = kind.item or DYN
        items.append((optional, run))
        if element is not None and not assignable(kind, element):
            raise CompileError(f"expected type '{element}' but found '{kind}'", item.position)
        element = kind if element is None else joined(element, kind)

    def build(env: Env) -> list[Any]:
        result = []
        for optional, run in items:
            value = run(env)
            if not optional:
                result.append(value)
            elif value.present:
                result.append(value.value)
        return result

    return build, list_of(element or DYN)


def _map(node: MapOf, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    entries: list[tuple[bool, Run, Run]] = []
    element: Type | None = None
    key_kinds: set[str] = set()
    for optional, key, value in node.entries:
        key_run, key_kind = compile_node(key, scope, names)
        if key_kind.kind not in ("string", "int", "uint", "bool", "dyn"):
            raise CompileError(f"unsupported map key type: {key_kind}", key.position)
        key_kinds.add(key_kind.kind)
        run, kind = compile_node(value, scope, names)
        if optional:
            kind = kind.item or DYN
        entries.append((optional, key_run, run))
        element = kind if element is None else joined(element, kind)

    def build(env: Env) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for optional, key_run, run in entries:
            key, value = key_run(env), run(env)
            if kind_of(key) not in ("string", "int", "uint", "bool"):
                raise EvalError(f"unsupported key type: {kind_of(key)}")
            if key in result:
                raise EvalError(f"Failed with repeated key {key}")
            if not optional:
                result[key] = value
            elif value.present:
                result[key] = value.value
        return result

    return build, Type("map", element or DYN, key_kind=key_kinds.pop() if len(key_kinds) == 1 else "dyn")


def _no_overload(name: str, kinds: tuple[Type, ...], position: int) -> CompileError:
    shown = ", ".join(map(str, kinds))
    return CompileError(f"found no matching overload for '{name}' applied to '({shown})'", position)


def _call(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    if node.name in _LOGIC:
        return _LOGIC[node.name](node, scope, names)
    target = node.target
    name = node.name
    if isinstance(target, Ident) and target.name not in scope and f"{target.name}.{name}" in FUNCTIONS:
        name, target = f"{target.name}.{name}", None
    overloads = FUNCTIONS.get(name)
    if overloads is None or not any(over.member == (target is not None) for over in overloads):
        raise CompileError(f"undeclared reference to '{name}' (in container '')", node.position)
    operands = ([] if target is None else [target]) + list(node.args)
    compiled = [compile_node(operand, scope, names) for operand in operands]
    kinds = tuple(kind for _, kind in compiled)
    runs = [run for run, _ in compiled]
    fitting = [
        over for over in overloads if over.member == (target is not None) and over.accepts(kinds, static=True)
    ]
    if not fitting:
        if target is not None:
            shown = f"{kinds[0]}.({', '.join(map(str, kinds[1:]))})"
            text = f"found no matching overload for '{name}' applied to '{shown}'"
            raise CompileError(text, node.position)
        raise _no_overload(name, kinds, node.position)
    result = fitting[0].result_of(kinds)
    for over in fitting[1:]:
        result = joined(result, over.result_of(kinds))
    if name in ("_==_", "_!=_"):
        return _equality(node, runs, kinds, name == "_!=_"), BOOL
    if name == "_+_" and kinds[0].unordered:
        return _merge(runs, kinds[0]), kinds[0]
    certain = len(fitting) == 1 and not any(kind.kind == "dyn" for kind in kinds)
    return _dispatch(fitting, runs, certain), result


def _dispatch(fitting: list[Overload], runs: list[Run], certain: bool) -> Run:
    if certain:
        do = fitting[0].run
        if len(runs) == 1:
            one = runs[0]
            return lambda env: do(one(env))
        if len(runs) == 2:
            first, second = runs
            return lambda env: do(first(env), second(env))
        return lambda env: do(*[run(env) for run in runs])

    def choose(env: Env) -> Any:
        values = [run(env) for run in runs]
        kinds = [kind_of(value) for value in values]
        for over in fitting:
            if over.takes(kinds):
                return over.run(*values)
        raise EvalError("no such overload")

    return choose


def _equality(node: Call, runs: list[Run], kinds: tuple[Type, ...], negate: bool) -> Run:
    left_kind, right_kind = kinds
    comparable = (
        assignable(left_kind, right_kind)
        or "null_type" in (left_kind.kind, right_kind.kind)
        or {left_kind.kind, right_kind.kind} <= {"int", "uint", "double"}
    )
    if not comparable:
        raise _no_overload(node.name, kinds, node.position)
    left, right = runs
    same = _same_items if left_kind.unordered or right_kind.unordered else equal
    if negate:
        return lambda env: not same(left(env), right(env))
    return lambda env: same(left(env), right(env))


def _same_items(left: Any, right: Any) -> bool:
    """Equality of sets and map lists: the order of the items does not count."""
    if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
        return equal(left, right)
    rest = list(right)
    for item in left:
        for index, other in enumerate(rest):
            if equal(item, other):
                del rest[index]
                break
        else:
            return False
    return True


def _merge(runs: list[Run], kind: Type) -> Run:
    """``+`` on sets and map lists: items of the right replace those with the same identity on the left."""
    left, right = runs

    def identity(item: Any) -> Any:
        if kind.keys and isinstance(item, dict):
            return [item.get(key) for key in kind.keys]
        return item

    def merge(env: Env) -> list[Any]:
        result = list(left(env))
        for item in right(env):
            mark = identity(item)
            for index, known in enumerate(result):
                if equal(identity(known), mark):
                    result[index] = item
                    break
            else:
                result.append(item)
        return result

    return merge


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvalError("no such overload")


def _bool_operand(node: Node, scope: Scope, names: set[str], name: str, position: int) -> Run:
    run, kind = compile_node(node, scope, names)
    if kind.kind not in ("bool", "dyn"):
        raise _no_overload(name, (kind,), position)
    return run


def _both_sides(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    """``&&`` and ``||``: one side can decide although the other has no value."""
    left, left_kind = compile_node(node.args[0], scope, names)
    right, right_kind = compile_node(node.args[1], scope, names)
    if any(kind.kind not in ("bool", "dyn") for kind in (left_kind, right_kind)):
        raise _no_overload(node.name, (left_kind, right_kind), node.position)
    decisive = node.name == "_||_"

    def decide(env: Env) -> bool:
        try:
            if _truth(left(env)) is decisive:
                return decisive
        except EvalError:
            if _truth(right(env)) is decisive:
                return decisive
            raise
        return _truth(right(env))

    return decide, BOOL


def _negation(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    run = _bool_operand(node.args[0], scope, names, "!_", node.position)
    return (lambda env: not _truth(run(env))), BOOL


def _choice(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    condition, condition_kind = compile_node(node.args[0], scope, names)
    chosen, chosen_kind = compile_node(node.args[1], scope, names)
    other, other_kind = compile_node(node.args[2], scope, names)
    if condition_kind.kind not in ("bool", "dyn") or not (
        assignable(chosen_kind, other_kind) or "null_type" in (chosen_kind.kind, other_kind.kind)
    ):
        raise _no_overload("_?_:_", (condition_kind, chosen_kind, other_kind), node.position)
    return (lambda env: chosen(env) if _truth(condition(env)) else other(env)), joined(chosen_kind, other_kind)


def _membership(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    item, item_kind = compile_node(node.args[0], scope, names)
    holder, holder_kind = compile_node(node.args[1], scope, names)
    fits = {
        "list": assignable(item_kind, holder_kind.item or DYN),
        "map": item_kind.kind in (*_keys_of(holder_kind), "dyn"),
        "dyn": True,
    }
    if not fits.get(holder_kind.kind, False):
        raise _no_overload("@in", (item_kind, holder_kind), node.position)

    def contains(env: Env) -> bool:
        wanted, container = item(env), holder(env)
        if isinstance(container, dict):
            if type(wanted) is str:
                return wanted in container
            return lookup(container, wanted).present
        if isinstance(container, list):
            return any(equal(known, wanted) for known in container)
        raise EvalError("no such overload")

    return contains, BOOL


def _type_of(node: Call, scope: Scope, names: set[str]) -> tuple[Run, Type]:
    if len(node.args) != 1 or node.target is not None:
        raise CompileError("undeclared reference to 'type' (in container '')", node.position)
    run, static = compile_node(node.args[0], scope, names)
    opaque = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
    if static.kind == "object":
        named = TypeName("object")
        return (lambda env: named), TYPE

    def name(env: Env) -> TypeName:
        kind = kind_of(run(env))
        return TypeName(opaque.get(kind, kind))

    return name, TYPE


_LOGIC: Final[dict[str, Callable[[Call, Scope, set[str]], tuple[Run, Type]]]] = {
    "_&&_": _both_sides,
    "_||_": _both_sides,
    "!_": _negation,
    "_?_:_": _choice,
    "@in": _membership,
    "type": _type_of,
}
