"""Kubernetes' CEL functions: quantities, semantic versions, and further functions for selectors.

The runtime only has CEL's types, so a quantity is represented as the map `{"quantity": nano-units as text}` and a
semantic version as `{"semver": text}`. Two quantities are then equal if their amounts are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

from phalanx.cluster.dra.amounts import nano
from phalanx.cluster.dra.versions import normalised, parse_version
from phalanx.model.text.quantity import NANO, QuantityError

_QUANTITY, _SEMVER = "quantity", "semver"
_INT = cel.Type.INT
_BOOL = cel.Type.BOOL
_TEXT = cel.Type.STRING
_ANY = cel.Type.DYN
_LEAST, _MOST = -(2**63), 2**63 - 1
# Limit for the values that `includes` compares.
_LONGEST_LIST = 48


def quantity(text: str) -> dict[str, str]:
    """Return a quantity as the map that represents it in CEL. Raise QuantityError."""
    return {_QUANTITY: str(nano(text))}


def semver(text: str, normalise: bool = False) -> dict[str, str]:
    """Parse a semantic version, normalised first if `normalise` is True. Raise ValueError."""
    text = normalised(text) if normalise else text
    parse_version(text)
    return {_SEMVER: text}


def kubernetes_functions() -> cel.CelExtension:
    """Return Kubernetes' functions as an extension of a CEL environment."""
    return cel.CelExtension(
        "kubernetes",
        [
            _function("quantity", (quantity, _ANY, (_TEXT,))),
            _function("isQuantity", (_is_quantity, _BOOL, (_TEXT,))),
            _function("semver", (semver, _ANY, (_TEXT,)), (semver, _ANY, (_TEXT, _BOOL))),
            _function("isSemver", (_is_semver, _BOOL, (_TEXT,)), (_is_semver, _BOOL, (_TEXT, _BOOL))),
            _method("isGreaterThan", lambda value, other: _compared(value, other) > 0, _BOOL, _ANY, _ANY),
            _method("isLessThan", lambda value, other: _compared(value, other) < 0, _BOOL, _ANY, _ANY),
            _method("compareTo", _compared, _INT, _ANY, _ANY),
            _method("sign", lambda value: _sign(_amount(value)), _INT, _ANY),
            _method("isInteger", lambda value: _is_integer(_amount(value)), _BOOL, _ANY),
            _method("asInteger", _as_integer, _INT, _ANY),
            _method("asApproximateFloat", lambda value: _amount(value) / NANO, cel.Type.DOUBLE, _ANY),
            _method("add", lambda value, other: _sum(value, other, 1), _ANY, _ANY, _ANY),
            _method("sub", lambda value, other: _sum(value, other, -1), _ANY, _ANY, _ANY),
            _method("major", lambda value: _version(value)[0], _INT, _ANY),
            _method("minor", lambda value: _version(value)[1], _INT, _ANY),
            _method("patch", lambda value: _version(value)[2], _INT, _ANY),
            _method("includes", _includes, _BOOL, _ANY, _ANY),
        ],
    )


def _function(name: str, *overloads: tuple[Callable[..., Any], cel.Type, tuple[cel.Type, ...]]) -> cel.FunctionDecl:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(f"{name}_{len(parameters)}", return_type=result, parameters=list(parameters), impl=body)
            for body, result, parameters in overloads
        ],
    )


def _method(name: str, body: Callable[..., Any], result: cel.Type, *parameters: cel.Type) -> cel.FunctionDecl:
    overload = cel.Overload(
        f"{name}_of", return_type=result, parameters=list(parameters), is_member=True, impl=body
    )
    return cel.FunctionDecl(name, [overload])


def _amount(value: Any) -> int:
    if isinstance(value, dict) and _QUANTITY in value:
        return int(value[_QUANTITY])
    raise TypeError("not a quantity")


def _version(value: Any) -> tuple[int, int, int, tuple[tuple[int, int, str], ...]]:
    if isinstance(value, dict) and _SEMVER in value:
        return parse_version(value[_SEMVER])
    raise TypeError("not a semantic version")


def _compared(value: Any, other: Any) -> int:
    if isinstance(value, dict) and _SEMVER in value:
        first, second = _version(value), _version(other)
        return (first > second) - (first < second)
    return _sign(_amount(value) - _amount(other))


def _sign(amount: int) -> int:
    return (amount > 0) - (amount < 0)


def _is_integer(amount: int) -> bool:
    return amount % NANO == 0 and _LEAST <= amount // NANO <= _MOST


def _as_integer(value: Any) -> int:
    amount = _amount(value)
    if not _is_integer(amount):
        raise ValueError("cannot convert value to integer")
    return amount // NANO


def _sum(value: Any, other: Any, sign: int) -> dict[str, str]:
    addend = other * NANO if isinstance(other, int) else _amount(other)
    return {_QUANTITY: str(_amount(value) + sign * addend)}


def _is_quantity(text: str) -> bool:
    try:
        nano(text)
    except QuantityError:
        return False
    return True


def _is_semver(text: str, normalise: bool = False) -> bool:
    try:
        semver(text, normalise)
    except ValueError:
        return False
    return True


def _includes(target: Any, value: Any) -> bool:
    if not isinstance(target, list):
        return bool(target == value)
    if len(target) > _LONGEST_LIST:
        raise ValueError(f"'includes' supports lists of at most {_LONGEST_LIST} values")
    return value in target
