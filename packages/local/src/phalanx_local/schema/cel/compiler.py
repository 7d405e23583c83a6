"""Compiler from the syntax tree of a CEL expression to a Python function, with type checks.

A compiled expression is a closure over an environment (a dict of variables). Static types catch mistakes when a
definition is created; for operands of type ``dyn`` the overload is selected at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from phalanx_local.schema.cel import macros
from phalanx_local.schema.cel.additions import additions
from phalanx_local.schema.cel.addresses import addresses
from phalanx_local.schema.cel.authorizing import authorizing
from phalanx_local.schema.cel.conversions import converter
from phalanx_local.schema.cel.errors import CompileError, EvalError, InstantiationError
from phalanx_local.schema.cel.functions import Overload, searched, standard
from phalanx_local.schema.cel.library import libraries
from phalanx_local.schema.cel.operators import OPERATORS, equality, field_of, key_of, lookup, merge, no_overload
from phalanx_local.schema.cel.syntax import CallExpr, Ident, Index, ListOf, Literal, MapOf, Node, Select, parse
from phalanx_local.schema.cel.text import check_format
from phalanx_local.schema.cel.types import (
    BOOL,
    DYN,
    FREE,
    TYPE,
    Env,
    Notes,
    Run,
    Scope,
    Type,
    alike,
    assignable,
    joined,
    list_of,
    optional_of,
)
from phalanx_local.schema.cel.values import FULL_NAMES, NONE, Option, TypeName, kind_of

#: Identifiers that denote types.
TYPE_NAMES: Final = frozenset(
    ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "dyn", "optional_type")
)


@dataclass(frozen=True, slots=True)
class CelProgram:
    """Compiled CEL expression: result type, variables that it reads, and the types of the nodes of its tree."""

    run: Run
    type: Type
    names: frozenset[str]
    source: str
    tree: Node
    kinds: dict[int, Type]


def compile_text(source: str, scope: Scope) -> CelProgram:
    """Compile a CEL expression; raise CompileError with the mistake and its position."""
    tree = parse(source)
    notes = Notes()
    try:
        run, kind = compile_node(tree, dict(scope), notes)
    except RecursionError:
        raise CompileError("expression recursion limit exceeded") from None
    return CelProgram(run, kind, frozenset(notes.names & scope.keys()), source, tree, notes.kinds)


def compile_node(node: Node, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    """Return the function and the static type of a syntax tree node."""
    result = _compiled(node, scope, notes)
    notes.kinds[id(node)] = result[1]
    return result


def _compiled(node: Node, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    if isinstance(node, Literal):
        value = node.value
        return (lambda env: value), _literal_type(value)
    if isinstance(node, Ident):
        return _ident(node, scope, notes)
    if isinstance(node, Select):
        return _select(node, scope, notes)
    if isinstance(node, Index):
        return _index(node, scope, notes)
    if isinstance(node, ListOf):
        return _list(node, scope, notes)
    if isinstance(node, MapOf):
        return _map(node, scope, notes)
    expanded = macros.expand(node, scope, notes, compile_node)
    return expanded if expanded is not None else _call(node, scope, notes)


def _literal_type(value: Any) -> Type:
    return Type(kind_of(value))


def _ident(node: Ident, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    name = node.name
    if name in scope:
        notes.names.add(name)
        return (lambda env: env[name]), scope[name]
    if name in TYPE_NAMES:
        value = TypeName(name)
        return (lambda env: value), TYPE
    raise CompileError(f"undeclared reference to '{name}' (in container '')", node.position)


def dotted(node: Node) -> str:
    """Return the dotted name of a chain of field selections such as `a.b.c`; "" for other nodes."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.optional:
        head = dotted(node.operand)
        return f"{head}.{node.field}" if head else ""
    return ""


#: Types with dots in their names.
_FULL_NAMES: Final = frozenset(FULL_NAMES.values())


def _select(node: Select, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    whole = dotted(node)
    if whole in _FULL_NAMES:
        value = TypeName(whole)
        return (lambda env: value), TYPE
    if whole in scope:
        # The name of a variable can contain a dot.
        return _ident(Ident(node.position, whole), scope, notes)
    operand, kind = compile_node(node.operand, scope, notes)
    inner = (kind.item or DYN) if kind.kind == "optional_type" else kind
    key, below = field_of(inner, node.field, node.position)
    convert = converter(below)
    # A null field of an object is absent; a null value of a map is present.
    fields = inner.kind == "object"

    def find(holder: Any) -> Option:
        if isinstance(holder, Option):
            return find(holder.value) if holder.present else NONE
        if not isinstance(holder, dict):
            raise EvalError("no such overload")
        if key not in holder or (fields and holder[key] is None):
            return NONE
        return Option(True, convert(holder[key]) if convert else holder[key])

    if node.optional or kind.kind == "optional_type":
        return (lambda env: find(operand(env))), optional_of(below)

    def read(env: Env) -> Any:
        holder = operand(env)
        if type(holder) is dict and key in holder and not (fields and holder[key] is None):
            value = holder[key]
            return convert(value) if convert else value
        entry = find(holder)
        if not isinstance(holder, dict):
            return entry
        if not entry.present:
            raise EvalError(f"no such key: {node.field}")
        return entry.value

    return read, below


def _index(node: Index, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    operand, kind = compile_node(node.operand, scope, notes)
    key, key_kind = compile_node(node.key, scope, notes)
    inner = (kind.item or DYN) if kind.kind == "optional_type" else kind
    if inner.kind not in ("list", "map", "dyn"):
        raise no_overload("_[_]", (kind, key_kind), node.position)
    if inner.kind != "dyn" and not assignable(key_kind, key_of(inner)):
        raise no_overload("_[_]", (kind, key_kind), node.position)
    below = inner.item or DYN

    def read(env: Env) -> Any:
        holder = operand(env)
        if isinstance(holder, Option):
            return lookup(holder.value, key(env)) if holder.present else NONE
        wanted = key(env)
        entry = lookup(holder, wanted)
        if node.optional:
            return entry
        if not entry.present:
            raise EvalError(f"{'index out of bounds' if isinstance(holder, list) else 'no such key'}: {wanted}")
        return entry.value

    if node.optional or kind.kind == "optional_type":
        return read, optional_of(below)
    return read, below


def _list(node: ListOf, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    items: list[tuple[bool, Run]] = []
    element: Type | None = None
    for optional, item in node.items:
        run, kind = compile_node(item, scope, notes)
        kind = _offered(kind, item) if optional else kind
        items.append((optional, run))
        element = _side_by_side(element, kind, item, scope)

    def build(env: Env) -> list[Any]:
        result = []
        for optional, run in items:
            value = run(env)
            if not optional:
                result.append(value)
            elif value.present:
                result.append(value.value)
        return result

    return build, list_of(element or FREE)


def _map(node: MapOf, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    entries: list[tuple[bool, Run, Run]] = []
    element: Type | None = None
    common: Type | None = None
    for optional, key, value in node.entries:
        key_run, key_kind = compile_node(key, scope, notes)
        if key_kind.kind not in (*_KEYS, "dyn"):
            raise CompileError(f"unsupported map key type: {key_kind}", key.position)
        run, kind = compile_node(value, scope, notes)
        kind = _offered(kind, value) if optional else kind
        entries.append((optional, key_run, run))
        common = _side_by_side(common, key_kind, key, scope)
        element = _side_by_side(element, kind, value, scope)

    def build(env: Env) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for optional, key_run, run in entries:
            key, value = key_run(env), run(env)
            if kind_of(key) not in _KEYS:
                raise EvalError(f"unsupported key type: {kind_of(key)}")
            if key in result:
                raise EvalError(f"Failed with repeated key {key}")
            if not optional:
                result[key] = value
            elif value.present:
                result[key] = value.value
        return result

    return build, Type("map", element or FREE, key_kind=common.kind if common is not None else "dyn")


_KEYS: Final = ("string", "int", "uint", "bool")
#: Marker in the scope of arguments of format(), which can have different types.
_MIXED: Final = "@mixed"


def _offered(kind: Type, node: Node) -> Type:
    """Return the type of the value in an optional entry of a list or map literal."""
    if kind.kind not in ("optional_type", "dyn"):
        raise CompileError(f"expected type 'optional_type({kind})' but found '{kind}'", node.position)
    return kind.item or DYN


def _side_by_side(known: Type | None, kind: Type, node: Node, scope: Scope) -> Type:
    """Return the common type of the entries of a list or map literal. Raise CompileError if the types differ."""
    if known is None:
        return kind
    if not alike(known, kind) and _MIXED not in scope:
        raise CompileError(f"expected type '{known}' but found '{kind}'", node.position)
    return joined(known, kind)


#: All functions by name; the names of functions in a namespace contain a dot.
FUNCTIONS: Final = standard()
for _part in (libraries(), addresses(), additions(), authorizing()):
    for _name, _overloads in _part.items():
        FUNCTIONS.setdefault(_name, []).extend(_overloads)


def _call(node: CallExpr, scope: Scope, notes: Notes) -> tuple[Run, Type]:
    if node.name in OPERATORS:
        return OPERATORS[node.name](node, scope, notes, compile_node)
    target, name = node.target, node.name
    space = dotted(target) if target is not None else ""
    if space and space.partition(".")[0] not in scope and f"{space}.{name}" in FUNCTIONS:
        name, target = f"{space}.{name}", None
    args = list(node.args)
    compiled = [] if target is None else [compile_node(target, scope, notes)]
    overloads = [over for over in FUNCTIONS.get(name, ()) if over.receiver == (target is not None)]
    if not overloads:
        raise CompileError(f"undeclared reference to '{name}' (in container '')", node.position)
    inner = {**scope, _MIXED: DYN} if name == "format" else scope
    compiled += [compile_node(arg, inner, notes) for arg in args]
    kinds = tuple(kind for _, kind in compiled)
    runs = [run for run, _ in compiled]
    fitting = [over for over in overloads if over.accepts(kinds)]
    if not fitting:
        if target is not None:
            shown = f"{kinds[0]}.({', '.join(map(str, kinds[1:]))})"
            text = f"found no matching overload for '{name}' applied to '{shown}'"
            raise CompileError(text, node.position)
        raise no_overload(name, kinds, node.position)
    if name == "format" and isinstance(target, Literal) and isinstance(args[0], ListOf):
        _check_format(node, target.value, args[0], inner)
    else:
        check_constant(name, args, fitting[0])
    result = fitting[0].result_of(kinds)
    for over in fitting[1:]:
        result = joined(result, over.result_of(kinds))
    if name in ("_==_", "_!=_"):
        return equality(node, runs, kinds), BOOL
    if name == "_+_" and kinds[0].unordered:
        return merge(runs, kinds[0]), kinds[0]
    certain = len(fitting) == 1 and not any(kind.kind == "dyn" for kind in kinds)
    return _dispatch(fitting, runs, certain), result


def _check_format(node: CallExpr, template: Any, args: ListOf, scope: Scope) -> None:
    items = [item for _, item in args.items]
    kinds = [compile_node(item, scope, Notes())[1].kind for item in items]
    problem, place = check_format(str(template), kinds)
    if problem:
        raise CompileError(problem, items[place].position if place >= 0 else node.position)


#: Functions whose constant first argument is evaluated at compile time.
_TRIED: Final = ("duration", "timestamp")


def check_constant(name: str, args: list[Node], overload: Overload) -> None:
    """Raise CompileError for a constant argument that is no valid duration, timestamp or pattern."""
    constant = args[0] if args and isinstance(args[0], Literal) else None
    if constant is None:
        return
    try:
        if name in _TRIED:
            overload.run(constant.value)
        elif name in ("matches", "find", "findAll"):
            searched(str(constant.value))
    except EvalError as error:
        if name in ("find", "findAll"):
            raise InstantiationError(str(error), constant.position) from None
        raise CompileError(f"invalid {name} argument", constant.position) from None


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
