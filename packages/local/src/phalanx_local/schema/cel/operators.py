"""CEL operators with their own evaluation rules: logic, equality, membership, type()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phalanx_local.schema.cel.errors import CompileError, EvalError
from phalanx_local.schema.cel.syntax import CallExpr
from phalanx_local.schema.cel.types import (
    BOOL,
    DYN,
    INT,
    TYPE,
    Compile,
    Env,
    Notes,
    Run,
    Scope,
    Type,
    assignable,
    joined,
)
from phalanx_local.schema.cel.values import FULL_NAMES, NONE, Option, TypeName, equal, kind_of


def no_overload(name: str, kinds: tuple[Type, ...], position: int) -> CompileError:
    """Return the CompileError for operands that match no overload of a CEL operator or function."""
    shown = ", ".join(map(str, kinds))
    return CompileError(f"found no matching overload for '{name}' applied to '({shown})'", position)


def key_of(kind: Type) -> Type:
    """Return the type of the keys of a list (int) or map."""
    return INT if kind.kind == "list" else Type(kind.key_kind)


def field_of(kind: Type, field: str, position: int) -> tuple[str, Type]:
    """Return the JSON name and the type of an object's field; raise CompileError if the type has no such field."""
    if kind.kind == "object":
        if field not in kind.fields:
            raise CompileError(f"undefined field '{field}'", position)
        return kind.fields[field]
    if kind.kind in ("map", "dyn"):
        return field, kind.item or DYN
    raise CompileError(f"type '{kind}' does not support field selection", position)


def lookup(holder: Any, key: Any) -> Option:
    """Return the entry of a list or map as a CEL optional; raise EvalError if the value has no entries."""
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


def equality(node: CallExpr, runs: list[Run], kinds: tuple[Type, ...]) -> Run:
    """Compile ``==`` and ``!=``; sets and map lists are equal in any order."""
    left_kind, right_kind = kinds
    # Numbers of different types can be ordered but not tested for equality.
    if not assignable(left_kind, right_kind):
        raise no_overload(node.name, kinds, node.position)
    left, right = runs
    same = _same_items if left_kind.unordered or right_kind.unordered else equal
    if node.name == "_!=_":
        return lambda env: not same(left(env), right(env))
    return lambda env: same(left(env), right(env))


def _same_items(left: Any, right: Any) -> bool:
    """Return whether two sets or map lists have equal items in any order."""
    if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
        return equal(left, right)
    unmatched = list(right)
    for item in left:
        for index, candidate in enumerate(unmatched):
            if equal(item, candidate):
                del unmatched[index]
                break
        else:
            return False
    return True


def merge(runs: list[Run], kind: Type) -> Run:
    """Compile ``+`` on sets and map lists: items of the right operand replace items of the left one with the same
    key."""
    left, right = runs

    def identity(item: Any) -> Any:
        if kind.keys and isinstance(item, dict):
            return [item.get(key) for key in kind.keys]
        return item

    def merged(env: Env) -> list[Any]:
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

    return merged


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvalError("no such overload")


def _both_sides(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    """Compile ``&&`` and ``||``: one operand can decide even if the other one fails."""
    left, left_kind = compile_node(node.args[0], scope, notes)
    right, right_kind = compile_node(node.args[1], scope, notes)
    if any(kind.kind not in ("bool", "dyn") for kind in (left_kind, right_kind)):
        raise no_overload(node.name, (left_kind, right_kind), node.position)
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


def _negation(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    run, kind = compile_node(node.args[0], scope, notes)
    if kind.kind not in ("bool", "dyn"):
        raise no_overload("!_", (kind,), node.position)
    return (lambda env: not _truth(run(env))), BOOL


def _choice(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    condition, condition_kind = compile_node(node.args[0], scope, notes)
    chosen, chosen_kind = compile_node(node.args[1], scope, notes)
    other, other_kind = compile_node(node.args[2], scope, notes)
    if condition_kind.kind not in ("bool", "dyn") or not assignable(chosen_kind, other_kind):
        raise no_overload("_?_:_", (condition_kind, chosen_kind, other_kind), node.position)
    return (lambda env: chosen(env) if _truth(condition(env)) else other(env)), joined(chosen_kind, other_kind)


def _membership(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    item, item_kind = compile_node(node.args[0], scope, notes)
    holder, holder_kind = compile_node(node.args[1], scope, notes)
    fits = {
        "list": assignable(item_kind, holder_kind.item or DYN),
        "map": assignable(item_kind, key_of(holder_kind)),
        "dyn": True,
    }
    if not fits.get(holder_kind.kind, False):
        raise no_overload("@in", (item_kind, holder_kind), node.position)

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


def _type_of(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    if len(node.args) != 1 or node.target is not None:
        raise CompileError("undeclared reference to 'type' (in container '')", node.position)
    run, static = compile_node(node.args[0], scope, notes)
    if static.kind == "object":
        named = TypeName("object")
        return (lambda env: named), TYPE

    def name(env: Env) -> TypeName:
        kind = kind_of(run(env))
        return TypeName(FULL_NAMES.get(kind, kind))

    return name, TYPE


OPERATORS: Final[dict[str, Callable[[CallExpr, Scope, Notes, Compile], tuple[Run, Type]]]] = {
    "_&&_": _both_sides,
    "_||_": _both_sides,
    "!_": _negation,
    "_?_:_": _choice,
    "@in": _membership,
    "type": _type_of,
}
