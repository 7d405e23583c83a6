"""Extensions of Kubernetes to CEL: quantities, named formats, semantic versions and pattern searches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from phalanx.model.text.quantity import NANO, Quantity, QuantityError, exact_quantity
from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.functions import Overload, Table, member, parses, searched
from phalanx_local.schema.cel.types import (
    BOOL,
    DOUBLE,
    FORMAT,
    INT,
    QUANTITY,
    SEMVER,
    STRING,
    STRINGS,
    optional_of,
)
from phalanx_local.schema.cel.values import NONE, Option, Semver, StringFormat
from phalanx_local.schema.formats import FORMATS
from phalanx_local.schema.urls import parse_url
from phalanx_local.validation.names import (
    dns1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    masked,
)

# pattern searches -----------------------------------------------------------------------------------------


def _find(text: str, pattern: str) -> str:
    return searched(pattern).find(text) or ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    matches = list(searched(pattern).find_all(text))
    return matches if limit < 0 else matches[:limit]


def _searches() -> Table:
    return {
        "find": [member(("string", "string"), STRING, _find)],
        "findAll": [
            member(("string", "string"), STRINGS, _find_all),
            member(("string", "string", "int"), STRINGS, _find_all),
        ],
    }


# quantities -----------------------------------------------------------------------------------------------


def _quantity(text: str) -> Quantity:
    try:
        return exact_quantity(text)
    except QuantityError as error:
        raise EvalError(error.reason) from None


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvalError("cannot convert value to integer")
    return quantity.nano // NANO


def _is_integer(quantity: Quantity) -> bool:
    return quantity.is_integer and -(2**63) <= quantity.nano // NANO < 2**63


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _quantities() -> Table:
    quantity = "quantity"
    return {
        "quantity": [Overload(("string",), QUANTITY, _quantity)],
        "isQuantity": [Overload(("string",), BOOL, parses(_quantity))],
        "isInteger": [member((quantity,), BOOL, _is_integer)],
        "asInteger": [member((quantity,), INT, _as_integer)],
        "asApproximateFloat": [member((quantity,), DOUBLE, lambda value: value.nano / NANO)],
        "sign": [Overload((quantity,), INT, lambda value: _compare(value.nano, 0))],
        "add": [
            member((quantity, quantity), QUANTITY, lambda a, b: Quantity(a.nano + b.nano, a.style)),
            member((quantity, "int"), QUANTITY, lambda a, b: Quantity(a.nano + b * NANO, a.style)),
        ],
        "sub": [
            member((quantity, quantity), QUANTITY, lambda a, b: Quantity(a.nano - b.nano, a.style)),
            member((quantity, "int"), QUANTITY, lambda a, b: Quantity(a.nano - b * NANO, a.style)),
        ],
        "isLessThan": [member((quantity, quantity), BOOL, lambda a, b: a.nano < b.nano)],
        "isGreaterThan": [member((quantity, quantity), BOOL, lambda a, b: a.nano > b.nano)],
        "compareTo": [member((quantity, quantity), INT, lambda a, b: _compare(a.nano, b.nano))],
    }


# named formats --------------------------------------------------------------------------------------------


def _plain(name: str, words: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: () if FORMATS[name](text) else (words,)


def _uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except ValueError as error:
        return (str(error),)
    return ()


_NAMED: Final[dict[str, Callable[[str], tuple[str, ...]]]] = {
    "dns1123Label": dns_label,
    "dns1123Subdomain": dns_subdomain,
    "dns1035Label": dns1035_label,
    "qualifiedName": label_key,
    "labelValue": label_value,
    "dns1123LabelPrefix": lambda text: dns_label(masked(text)),
    "dns1123SubdomainPrefix": lambda text: dns_subdomain(masked(text)),
    "dns1035LabelPrefix": lambda text: dns1035_label(masked(text)),
    "uri": _uri,
    "uuid": _plain("uuid", "does not match the UUID format"),
    "byte": _plain("byte", "invalid base64"),
    "date": _plain("date", "invalid date"),
    "datetime": _plain("datetime", "invalid datetime"),
}


def _check_format(named: StringFormat, text: str) -> Option:
    problems = list(_NAMED[named.name](text))
    return Option(True, problems) if problems else NONE


def _formats() -> Table:
    table: Table = {
        "format.named": [
            Overload(
                ("string",),
                optional_of(FORMAT),
                lambda name: Option(True, StringFormat(name)) if name in _NAMED else NONE,
            )
        ],
        "validate": [member(("format", "string"), optional_of(STRINGS), _check_format)],
    }

    def constant(name: str) -> Callable[[], StringFormat]:
        return lambda: StringFormat(name)

    for name in _NAMED:
        table[f"format.{name}"] = [Overload((), FORMAT, constant(name))]
    return table


# semantic versions ----------------------------------------------------------------------------------------

_NUMBER: Final = r"(0|[1-9]\d*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*))?(?:\+([\dA-Za-z-]+(?:\.[\dA-Za-z-]+)*))?"
)


def _semver(text: str, normalize: bool = False) -> Semver:
    if normalize:
        text = text.removeprefix("v")
        core, mark, rest = re.fullmatch(r"([^-+]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in core.split(".")]
        parts += ["0"] * (3 - len(parts))
        text = ".".join(parts) + mark + rest
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise EvalError(f'invalid semantic version "{text}"')
    pre = tuple(match[4].split(".")) if match[4] else ()
    return Semver(int(match[1]), int(match[2]), int(match[3]), pre, match[5] or "")


def _semvers() -> Table:
    pair = ("semver", "semver")
    return {
        "semver": [Overload(("string",), SEMVER, _semver), Overload(("string", "bool"), SEMVER, _semver)],
        "isSemver": [
            Overload(("string",), BOOL, parses(_semver)),
            Overload(("string", "bool"), BOOL, parses(_semver)),
        ],
        "major": [member(("semver",), INT, lambda version: version.major)],
        "minor": [member(("semver",), INT, lambda version: version.minor)],
        "patch": [member(("semver",), INT, lambda version: version.patch)],
        "isLessThan": [member(pair, BOOL, lambda a, b: a.key() < b.key())],
        "isGreaterThan": [member(pair, BOOL, lambda a, b: a.key() > b.key())],
        "compareTo": [member(pair, INT, lambda a, b: _compare(a.key(), b.key()))],
    }


def additions() -> Table:
    """Return the CEL functions of this module: quantities, formats, semantic versions and pattern searches."""
    table: Table = {}
    for part in (_searches(), _quantities(), _formats(), _semvers()):
        for name, overloads in part.items():
            table.setdefault(name, []).extend(overloads)
    return table
