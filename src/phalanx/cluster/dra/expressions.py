"""CEL expressions that select devices.

The variable `device` has `driver`, `allowMultipleAllocations`, `attributes` and `capacity`; the latter two are maps
from a domain to a map from an identifier to a value. Names without a domain belong to the driver's. A domain that a
device lacks is an empty map when it is indexed, and absent when the map itself is inspected, as in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from phalanx.cluster.dra.errors import SelectorError
from phalanx.cluster.dra.functions import kubernetes_functions, quantity, semver
from phalanx.model.devices.claims import Device, DeviceAttribute

# Limit of the API server.
LONGEST_EXPRESSION = 10 * 1024

_MAPS = re.compile(r"\bdevice\s*\.\s*(attributes|capacity)\b(?!\s*\[)(?!\s*\.\s*\w+\b(?!\s*\())")
_LITERAL = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
# With these functions, an expression can depend on names that it does not contain.
_LOOKS_AROUND = re.compile(r"[+{]|\b(?:exists|exists_one|all|map|filter|size|string|type|format|join|replace)\b")


class Program:
    """One compiled CEL expression that selects devices."""

    def __init__(self, env: cel.Env, text: str) -> None:
        """Compile a CEL expression. Raise SelectorError."""
        if len(text) > LONGEST_EXPRESSION:
            raise SelectorError(f"CEL compile error: longer than {LONGEST_EXPRESSION} bytes")
        self._compiled = _compile(env, text)
        if _MAPS.search(text):
            self._compiled = _compile(env, _MAPS.sub(r"device.published.\1", text))
        self._domains = sorted({match[0][1:-1] for match in _LITERAL.finditer(text)} - {""})
        self._text = text
        self._looks_around = bool(_LOOKS_AROUND.search(_LITERAL.sub("''", text)))

    def sees(self, driver: str, device: Device) -> Hashable:
        """Return the part of the device on which the expression's result can depend."""
        if self._looks_around:
            return driver, device.shareable, device.attributes, device.capacity
        return (
            driver,
            device.shareable,
            tuple(entry for entry in device.attributes if self._names(entry[0])),
            tuple(entry for entry in device.capacity if self._names(entry[0])),
        )

    def evaluate(self, driver: str, device: Device) -> bool:
        """Return whether the expression selects the device. Raise SelectorError."""
        try:
            result = self._compiled.eval(data={"device": _seen(driver, device, self._domains)})
        except RuntimeError as error:  # the iteration budget is exhausted
            raise SelectorError(f"CEL runtime error: {_first_line(error)}") from None
        except ValueError as error:  # an attribute that cannot be converted
            raise SelectorError(str(error)) from None
        if result.type() == cel.Type.ERROR:
            raise SelectorError(f"CEL runtime error: {_first_line(result.value())}")
        if result.type() != cel.Type.BOOL:
            raise SelectorError(f"CEL runtime error: the result is {result.type().name()}, not a bool")
        return bool(result.value())

    def _names(self, name: str) -> bool:
        return name.rpartition("/")[2] in self._text


def environment() -> cel.Env:
    """Return the environment in which all CEL expressions are compiled."""
    return cel.NewEnv(
        variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
        extensions=[
            kubernetes_functions(),
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
    )


def _compile(env: cel.Env, text: str) -> cel.Expression:
    try:
        compiled = env.compile(text)
    except RuntimeError as error:
        raise SelectorError(f"CEL compile error: {_first_line(error)}") from None
    if compiled.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        raise SelectorError(f"CEL compile error: must evaluate to bool, not {compiled.return_type().name()}")
    return compiled


def _seen(driver: str, device: Device, domains: list[str]) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes:
        domain, slash, identifier = name.rpartition("/")
        attributes.setdefault(domain if slash else driver, {})[identifier] = _value(name, attribute)
    for name, amount in device.capacity:
        domain, slash, identifier = name.rpartition("/")
        capacity.setdefault(domain if slash else driver, {})[identifier] = quantity(amount.value)
    # A computed index can only refer to the driver's own domain.
    empty: dict[str, dict[str, Any]] = {domain: {} for domain in (driver, *domains)}
    return {
        "driver": driver,
        "allowMultipleAllocations": device.shareable,
        "attributes": {**empty, **attributes},
        "capacity": {**empty, **capacity},
        "published": {"attributes": attributes, "capacity": capacity},
    }


def _value(name: str, attribute: DeviceAttribute) -> Any:
    match attribute.kind, attribute.value:
        case "version", str(text):
            try:
                return semver(text)
            except ValueError as error:
                raise ValueError(f"attribute {name}: {error}") from None
        case "versions", tuple(values):
            return [semver(str(text)) for text in values]
        case _, tuple(values):
            return list(values)
    return attribute.value


def _first_line(error: object) -> str:
    return str(error).removesuffix(" [INVALID_ARGUMENT]").partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
