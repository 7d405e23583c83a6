"""CEL macros: has, comprehensions over lists and maps, optional chaining and sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from phalanx_local.schema.cel.errors import BudgetError, CompileError, EvalError
from phalanx_local.schema.cel.operators import field_of
from phalanx_local.schema.cel.syntax import CallExpr, Ident, Index, Node, Select
from phalanx_local.schema.cel.types import (
    BOOL,
    DYN,
    INT,
    Compile,
    Env,
    Notes,
    Run,
    Scope,
    Type,
    list_of,
    optional_of,
)
from phalanx_local.schema.cel.values import NONE, Option, equal

#: Variable of the environment that counts the remaining steps.
STEPS: Final = "@steps"


def expand(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type] | None:
    """Compile a call of a CEL macro; return None if the call is no macro."""
    if node.target is None:
        if node.name == "has":
            return _has(node, scope, notes, compile_node)
        return None
    count = len(node.args)
    if node.name == "sortBy" and count == 2:
        return _sort_by(node, scope, notes, compile_node)
    if node.name in ("optMap", "optFlatMap") and count == 2:
        return _opt_map(node, scope, notes, compile_node)
    if (node.name, count) in COMPREHENSIONS:
        return _comprehension(node, scope, notes, compile_node)
    return None


#: Comprehension macros by name and number of arguments, with their number of variables.
COMPREHENSIONS: Final = {
    ("all", 2): 1,
    ("exists", 2): 1,
    ("exists_one", 2): 1,
    ("existsOne", 2): 1,
    ("filter", 2): 1,
    ("map", 2): 1,
    ("map", 3): 1,
    ("all", 3): 2,
    ("exists", 3): 2,
    ("existsOne", 3): 2,
    ("exists_one", 3): 2,
    ("transformList", 3): 2,
    ("transformList", 4): 2,
    ("transformMap", 3): 2,
    ("transformMap", 4): 2,
    ("transformMapEntry", 3): 2,
    ("transformMapEntry", 4): 2,
}


def _has(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    arg = node.args[0] if len(node.args) == 1 else None
    if isinstance(arg, Index) and not arg.optional:
        raise CompileError("invalid argument to has() macro", node.position)
    if not isinstance(arg, Select):
        raise CompileError("invalid argument to has() macro", node.position)
    operand, kind = compile_node(arg.operand, scope, notes)
    inner = (kind.item or DYN) if kind.kind == "optional_type" else kind
    key, _ = field_of(inner, arg.field, arg.position)

    def present(env: Env) -> bool:
        holder = operand(env)
        if isinstance(holder, Option):
            if not holder.present:
                return False
            holder = holder.value
        if not isinstance(holder, dict):
            raise EvalError("no such overload")
        # A null field is absent.
        return holder.get(key) is not None

    return present, BOOL


def _variable(node: Node) -> str:
    if not isinstance(node, Ident):
        raise CompileError("argument must be a simple name", node.position)
    return node.name


def _sort_by(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    assert node.target is not None
    keys = CallExpr(node.position, "map", node.args, node.target)
    return compile_node(CallExpr(node.position, "@sortBy", (node.target, keys)), scope, notes)


def _opt_map(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    assert node.target is not None
    operand, kind = compile_node(node.target, scope, notes)
    if kind.kind not in ("optional_type", "dyn"):
        text = f"found no matching overload for '{node.name}' applied to '{kind}.()'"
        raise CompileError(text, node.position)
    name = _variable(node.args[0])
    body, result = compile_node(node.args[1], {**scope, name: kind.item or DYN}, notes)
    flat = node.name == "optFlatMap"

    def chain(env: Env) -> Option:
        holder = operand(env)
        if not isinstance(holder, Option):
            raise EvalError("no such overload")
        if not holder.present:
            return NONE
        value = body({**env, name: holder.value})
        if flat:
            if not isinstance(value, Option):
                raise EvalError("no such overload")
            return value
        return Option(True, value)

    return chain, result if flat else optional_of(result)


def _comprehension(node: CallExpr, scope: Scope, notes: Notes, compile_node: Compile) -> tuple[Run, Type]:
    assert node.target is not None
    holder, kind = compile_node(node.target, scope, notes)
    if kind.kind not in ("list", "map", "dyn"):
        text = f"expression of type '{kind}' cannot be range of a comprehension (must be list, map, or dynamic)"
        raise CompileError(text, node.target.position)
    variables = [_variable(arg) for arg in node.args[: COMPREHENSIONS[(node.name, len(node.args))]]]
    element = kind.item or DYN
    key_kind = {"list": INT, "map": Type(kind.key_kind)}.get(kind.kind, DYN)
    inner = dict(scope)
    if len(variables) == 2:
        inner[variables[0]], inner[variables[1]] = key_kind, element
    else:
        inner[variables[0]] = element if kind.kind == "list" else key_kind
    bodies = [compile_node(arg, inner, notes) for arg in node.args[len(variables) :]]

    def rounds(env: Env) -> Iterator[Env]:
        """Yield the environment of each step of the comprehension in order (for maps: in key order)."""
        items = holder(env)
        steps = env.get(STEPS)
        if isinstance(items, list):
            pairs: Any = enumerate(items)
        elif isinstance(items, dict):
            pairs = items.items()
        else:
            raise EvalError("no such overload")
        local = dict(env)
        two, on_keys = len(variables) == 2, isinstance(items, dict)
        for key, item in pairs:
            if steps is not None:
                steps[0] -= 1
                if steps[0] < 0:
                    raise BudgetError
            if two:
                local[variables[0]] = key
                local[variables[1]] = item
            elif on_keys:
                local[variables[0]] = key
            else:
                local[variables[0]] = item
            yield local

    return _BUILDERS[node.name](node, rounds, bodies, (kind, element, key_kind))


Rounds = Callable[[Env], Iterator[Env]]
Bodies = list[tuple[Run, Type]]
Kinds = tuple[Type, Type, Type]


def _predicate(node: CallExpr, body: tuple[Run, Type]) -> Run:
    run, kind = body
    if kind.kind not in ("bool", "dyn"):
        raise CompileError(f"expected type 'bool' but found '{kind}'", node.args[-1].position)
    return run


def _quantifier(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    """Compile the macros all and exists: a deciding element has precedence over elements without a value."""
    test = _predicate(node, bodies[0])
    decisive = node.name == "exists"

    def decide(env: Env) -> bool:
        failure: EvalError | None = None
        for local in rounds(env):
            try:
                value: object = test(local)
            except EvalError as error:
                failure = error
                continue
            if value is not True and value is not False:
                failure = EvalError("no such overload")
            elif value is decisive:
                return decisive
        if failure is not None:
            raise failure
        return not decisive

    return decide, BOOL


def _exactly_one(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    test = _predicate(node, bodies[0])
    return (lambda env: sum(test(local) is True for local in rounds(env)) == 1), BOOL


def _filter(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    test = _predicate(node, bodies[0])
    name = _variable(node.args[0])
    kind, element, key_kind = kinds
    result = list_of(element if kind.kind != "map" else key_kind)
    return (lambda env: [local[name] for local in rounds(env) if test(local) is True]), result


def _map(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    run, kind = bodies[-1]
    if len(bodies) == 2:
        test = bodies[0][0]
        return (lambda env: [run(local) for local in rounds(env) if test(local) is True]), list_of(kind)
    return (lambda env: [run(local) for local in rounds(env)]), list_of(kind)


def _transform_map(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    run, kind = bodies[-1]
    test = bodies[0][0] if len(bodies) == 2 else None
    name = _variable(node.args[0])

    def build(env: Env) -> dict[Any, Any]:
        return {local[name]: run(local) for local in rounds(env) if test is None or test(local) is True}

    return build, Type("map", kind, key_kind=kinds[2].kind)


def _transform_entry(node: CallExpr, rounds: Rounds, bodies: Bodies, kinds: Kinds) -> tuple[Run, Type]:
    run, kind = bodies[-1]
    test = bodies[0][0] if len(bodies) == 2 else None

    def build(env: Env) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for local in rounds(env):
            if test is not None and test(local) is not True:
                continue
            entry = run(local)
            if not isinstance(entry, dict):
                raise EvalError("no such overload")
            for key, value in entry.items():
                if any(equal(key, known) for known in result):
                    raise EvalError(f"insert failed: key {key} already exists")
                result[key] = value
        return result

    return build, kind if kind.kind == "map" else Type("map", DYN)


_BUILDERS: Final = {
    "all": _quantifier,
    "exists": _quantifier,
    "exists_one": _exactly_one,
    "existsOne": _exactly_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entry,
}
