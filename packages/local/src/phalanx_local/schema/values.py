"""Validation of values by OpenAPI keywords, with the error messages of kube-apiserver."""

from __future__ import annotations

import marshal
from typing import Any, Final

from phalanx_local.schema.formats import NUMBERS
from phalanx_local.schema.nodes import SchemaNode
from phalanx_local.validation.errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    shown,
    too_long,
    too_many,
    type_invalid,
)

#: Marker for an absent old value.
NOTHING: Final = object()

#: Field of an error about the object as a whole.
WHOLE: Final = "<nil>"


def check_value(errors: list[FieldError], node: SchemaNode, value: Any, path: str, old: Any = NOTHING) -> None:
    """Add the errors of a value by the OpenAPI keywords of its schema.

    ``old`` is the value at the same path in the stored object: an unchanged value causes no errors, so that
    existing objects remain updatable after a schema becomes stricter.
    """
    if old is not NOTHING and _same(old, value):
        return
    if value is None and node.nullable:
        return
    if value is None:
        _type(errors, node, value, path)
        _enum(errors, node, value, path)
        return
    kind = type(value)
    if not _is_plain(node, kind):
        _type(errors, node, value, path)
    if node.all_of or node.any_of or node.one_of or node.none_of is not None:
        _junctors(errors, node, value, path, old)
    if kind is str:
        _string(errors, node, value, path)
    elif kind is int or kind is float:
        _number(errors, node, value, path)
    elif kind is list:
        _array(errors, node, value, path, old if type(old) is list else NOTHING)
    if node.enum is not None:
        _enum(errors, node, value, path)
    if kind is dict:
        _object(errors, node, value, path, old if type(old) is dict else NOTHING)


_PLAIN: Final = {str: "string", int: "integer", dict: "object", list: "array", bool: "boolean"}


def _is_plain(node: SchemaNode, kind: type) -> bool:
    """Return whether the schema restricts only the type, and the value obviously has this type."""
    return not node.checked_format and not node.int_or_string and node.type == _PLAIN.get(kind)


def _same(old: Any, value: Any) -> bool:
    """Return whether two values are equal including types: in Python, true equals 1, also within lists and
    objects."""
    return old is value or (
        bool(old == value) and marshal.dumps(old, _NO_REFERENCES) == marshal.dumps(value, _NO_REFERENCES)
    )


#: Version of the marshal format that does not encode references between equal parts.
_NO_REFERENCES: Final = 2


def _enum(errors: list[FieldError], node: SchemaNode, value: Any, path: str) -> None:
    if node.enum and not any(item == value and type(item) is type(value) for item in node.enum):
        names = [item if isinstance(item, str) else shown(item) for item in node.enum]
        errors.append(not_supported(path or WHOLE, value, names, keep_order=True))


#: Larger doubles do not count as integers.
_EXACT: Final = 2**53 - 1


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) <= _EXACT else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _type(errors: list[FieldError], node: SchemaNode, value: Any, path: str) -> None:
    found = _type_name(value)
    wanted = ("integer", "string") if node.int_or_string else (node.type,)
    if wanted == ("",) and not node.checked_format:
        return
    fits = found in wanted or (found == "integer" and "number" in wanted)
    named = node.checked_format
    if named and not isinstance(value, str | list) and value is not None:
        kind = "int64" if type(value) is int else "float64" if type(value) is float else ""
        if not fits and kind != named:
            errors.append(_wrong_type(path, named, kind))
            return
    elif named and value is not None and not {"number", "integer"} & set(wanted):
        # For text with a format, only the format is checked.
        return
    if not fits and wanted != ("",):
        errors.append(_wrong_type(path, ",".join(wanted), found))


def _wrong_type(path: str, wanted: str, found: str) -> FieldError:
    return type_invalid(path or WHOLE, found, f"{path} in body must be of type {wanted}: {shown(found)}")


def _string(errors: list[FieldError], node: SchemaNode, value: str, path: str) -> None:
    # Only the first of these errors is reported.
    if node.max_length is not None and len(value) > node.max_length:
        errors.append(too_long(path, node.max_length))
    elif node.min_length is not None and len(value) < node.min_length:
        detail = f"{path} in body should be at least {node.min_length} chars long"
        errors.append(invalid(path, value, detail))
    elif node.pattern is not None and not node.pattern.found_in(value):
        errors.append(invalid(path, value, f"{path} in body should match '{node.pattern_text}'"))
    elif node.pattern_error:
        detail = f"{path} in body should match '{node.pattern_text}, but pattern is invalid: {node.pattern_error}'"
        errors.append(invalid(path, value, detail))
    if node.check_format is not None and not node.check_format(value):
        detail = f"{path} in body must be of type {node.format}: {shown(value)}"
        errors.append(invalid(path, value, detail))


def _number(errors: list[FieldError], node: SchemaNode, value: float, path: str) -> None:
    if node.type in NUMBERS and not node.int_or_string:
        _range(errors, node, value, path)
    if node.multiple_of is not None and value % node.multiple_of:
        detail = f"{path} in body should be a multiple of {_plain(node.multiple_of)}"
        errors.append(invalid(path, value, detail))
    low, high = node.minimum, node.maximum
    if low is not None and (value < low or (node.exclusive_minimum and value == low)):
        words = "greater than" if node.exclusive_minimum else "greater than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {words} {_plain(low)}"))
    if high is not None and (value > high or (node.exclusive_maximum and value == high)):
        words = "less than" if node.exclusive_maximum else "less than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {words} {_plain(high)}"))


def _range(errors: list[FieldError], node: SchemaNode, value: float, path: str) -> None:
    formats = NUMBERS[node.type]
    bounds = formats.get(node.checked_format) or formats["int64" if node.type == "integer" else "double"]
    whole = node.type != "integer" or type(value) is int or value.is_integer()
    if not whole or not bounds[0] <= value <= bounds[1]:
        how = f"with format {node.checked_format}" if node.checked_format else "(default format)"
        text = f'Invalid value: "": Checked value must be of type {node.type} {how} in {path}'
        errors.append(FieldError(WHOLE, "FieldValueInvalid", text))


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _object(errors: list[FieldError], node: SchemaNode, value: dict[str, Any], path: str, old: Any) -> None:
    size = len(value)
    if node.min_properties is not None and size < node.min_properties:
        detail = f"{path} in body should have at least {node.min_properties} properties"
        errors.append(invalid(path or WHOLE, size, detail))
    if node.max_properties is not None and size > node.max_properties:
        errors.append(too_many(path or WHOLE, size, node.max_properties))
    properties, additional = node.properties, node.additional
    former = {} if old is NOTHING else old
    for name, item in value.items():
        sub = properties.get(name) or additional
        if sub is not None:
            was = former.get(name, NOTHING)
            if not path and name in ("apiVersion", "kind"):
                # Another version can be stored: these fields never count as unchanged.
                was = NOTHING
            check_value(errors, sub, item, f"{path}.{name}" if path else name, was)
    if node.required:
        missing = [name for name in node.required if name not in value]
        errors.extend(required(f"{path}.{name}" if path else name) for name in missing)


def _array(errors: list[FieldError], node: SchemaNode, value: list[Any], path: str, old: Any) -> None:
    size = len(value)
    if node.items is not None:
        former = correlated(node, value, old)
        for index, item in enumerate(value):
            check_value(errors, node.items, item, f"{path}[{index}]", former[index])
    if node.min_items is not None and size < node.min_items:
        errors.append(invalid(path, size, f"{path} in body should have at least {node.min_items} items"))
    if node.max_items is not None and size > node.max_items:
        errors.append(too_many(path, size, node.max_items))


def correlated(node: SchemaNode, value: list[Any], old: Any) -> list[Any]:
    """Return the old value of each list item: by the keys of a map list, NOTHING for items of other lists."""
    if old is NOTHING or not old or node.list_type != "map":
        return [NOTHING] * len(value)
    index = {map_key(node, item): item for item in old if isinstance(item, dict)}
    return [index.get(map_key(node, item), NOTHING) if isinstance(item, dict) else NOTHING for item in value]


def map_key(node: SchemaNode, item: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of a map list item's keys; an absent key counts with its default."""
    properties = node.items.properties if node.items is not None else {}
    return tuple(
        shown(item[key]) if key in item else shown(properties[key].default) if key in properties else ""
        for key in node.list_keys
    )


def check_lists(errors: list[FieldError], node: SchemaNode, value: Any, path: str) -> None:
    """Add an error for each duplicate item of sets and map lists, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            sub = node.properties.get(name)
            if sub is not None:
                check_lists(errors, sub, item, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                check_lists(errors, node.additional, item, f"{path}[{name}]")
    elif isinstance(value, list):
        if node.list_type == "set":
            repeated = _repeated([shown(item) for item in value])
            errors.extend(duplicate(f"{path}[{index}]", value[index]) for index in repeated)
        elif node.list_type == "map":
            for index, item in enumerate(value):
                if item is not None and not isinstance(item, dict):
                    errors.append(
                        invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
                    )
                    return
            keys = [
                tuple(shown(item[key]) if item and key in item else "" for key in node.list_keys) for item in value
            ]
            for index in _repeated(keys):
                item = value[index] or {}
                shown_keys = {key: item[key] for key in node.list_keys if key in item}
                errors.append(duplicate(f"{path}[{index}]", shown_keys))
        if node.items is not None:
            for index, item in enumerate(value):
                check_lists(errors, node.items, item, f"{path}[{index}]")


def _repeated(keys: list[Any]) -> list[int]:
    """Return the index of the second occurrence of each repeated key."""
    times: dict[Any, int] = {}
    indexes = []
    for index, key in enumerate(keys):
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            indexes.append(index)
    return indexes


def _junctors(errors: list[FieldError], node: SchemaNode, value: Any, path: str, old: Any) -> None:
    name = shown(path)
    if node.any_of:
        best = _closest(node.any_of, value, path, old)
        if best:
            errors.append(
                FieldError(
                    WHOLE,
                    "FieldValueInvalid",
                    f'Invalid value: "": {name} must validate at least one schema (anyOf)',
                )
            )
            errors.extend(best)
    if node.one_of:
        valid = sum(not _complaints(sub, value, path, old) for sub in node.one_of)
        if valid != 1:
            found = "none valid" if valid == 0 else f"{valid} valid alternatives"
            text = f'Invalid value: "": {name} must validate one and only one schema (oneOf). Found {found}'
            errors.append(FieldError(WHOLE, "FieldValueInvalid", text))
            if valid == 0:
                errors.extend(_closest(node.one_of, value, path, old))
    if node.all_of:
        failures = [error for sub in node.all_of for error in _complaints(sub, value, path, old)]
        if failures:
            errors.extend(failures)
            text = f'Invalid value: "": {name} must validate all the schemas (allOf)'
            valid = sum(not _complaints(sub, value, path, old) for sub in node.all_of)
            if valid == 0:
                text += ". None validated"
            errors.append(FieldError(WHOLE, "FieldValueInvalid", text))
    if node.none_of is not None and not _complaints(node.none_of, value, path, old):
        errors.append(
            FieldError(WHOLE, "FieldValueInvalid", f'Invalid value: "": {name} must not validate the schema (not)')
        )


def _complaints(node: SchemaNode, value: Any, path: str, old: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    check_value(errors, node, value, path, old)
    return errors


def _closest(nodes: tuple[SchemaNode, ...], value: Any, path: str, old: Any) -> list[FieldError]:
    """Return the errors of the anyOf/oneOf alternative with the most successful checks; none if an alternative
    accepts the value."""
    best: list[FieldError] = []
    best_checks = -1
    for node in nodes:
        errors = _complaints(node, value, path, old)
        if not errors:
            return []
        checks = _checks(node, value)
        if checks > best_checks:
            best, best_checks = errors, checks
    return best


def _checks(node: SchemaNode, value: Any) -> int:
    """Return a score for how well a value matches a schema: the number of checks, where successful checks count
    more."""
    count = 4
    if node.type or node.int_or_string or node.checked_format:
        wrong: list[FieldError] = []
        _type(wrong, node, value, "")
        count += 1 if wrong else 2
    count += sum(_checks(sub, value) for sub in node.all_of)
    if isinstance(value, dict):
        pairs = ((node.properties.get(name) or node.additional, item) for name, item in value.items())
        return count + 1 + sum(_checks(sub, item) for sub, item in pairs if sub is not None)
    if isinstance(value, list):
        return count + 2 + (sum(_checks(node.items, item) for item in value) if node.items is not None else 0)
    if isinstance(value, str):
        return count + 1 + (node.check_format is not None)
    return count + 2 * (isinstance(value, int | float) and not isinstance(value, bool))
