"""Validation rules of CRDs (``x-kubernetes-validations``): compiled once per schema, executed on every write.

A rule with ``oldSelf`` is a transition rule: it runs on updates only, and only where a value correlates with an
old one (by field name, map key or the keys of a map list), unless it sets ``optionalOldSelf``. Other rules ignore
values that an update did not change (ratcheting).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from phalanx_local.schema.cel import (
    NONE,
    STEPS,
    BudgetError,
    CelProgram,
    CompileError,
    EvalError,
    InstantiationError,
    Option,
    compile_text,
    converter,
    declared,
    optional_of,
)
from phalanx_local.schema.nodes import SchemaNode
from phalanx_local.schema.values import NOTHING, WHOLE, correlated
from phalanx_local.validation.errors import FieldError, duplicate, forbidden, required, shown

#: Maximum number of comprehension steps of all rules of one object.
BUDGET: Final = 1_000_000
_MESSAGE_LIMIT: Final = 5 * 1024
_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One compiled x-kubernetes-validations rule. ``error`` is set instead of ``program`` if the rule does not
    compile."""

    source: str
    program: CelProgram | None
    error: str
    message: str
    message_program: CelProgram | None
    message_error: str
    reason: str
    field_path: str
    optional_old: bool
    #: Conversion from the JSON value of the node to the CEL value (time, duration, bytes), if they differ.
    convert: Callable[[Any], Any] | None

    @property
    def transition(self) -> bool:
        """Whether the rule compares the value with the old value (`oldSelf`)."""
        return self.program is not None and "oldSelf" in self.program.names


@dataclass(slots=True)
class Ruled:
    """Validation rules of a schema node and of its children; nodes without rules are omitted."""

    node: SchemaNode
    rules: list[ValidationRule]
    properties: dict[str, Ruled]
    additional: Ruled | None
    items: Ruled | None


def compile_rules(node: SchemaNode, *, root: bool = False) -> Ruled | None:
    """Compile the validation rules of a schema; return None if it has none."""
    properties = {
        name: ruled
        for name, sub in node.properties.items()
        if (ruled := compile_rules(sub, root=sub.embedded)) is not None
    }
    additional = compile_rules(node.additional, root=node.additional.embedded) if node.additional else None
    items = compile_rules(node.items, root=node.items.embedded) if node.items is not None else None
    rules = [compile_rule(node, rule, root=root) for rule in node.rules]
    if not rules and not properties and additional is None and items is None:
        return None
    return Ruled(node, rules, properties, additional, items)


def compile_rule(node: SchemaNode, rule: dict[str, Any], *, root: bool) -> ValidationRule:
    """Compile one validation rule of a schema node."""
    source = str(rule.get("rule") or "")
    optional = bool(rule.get("optionalOldSelf"))
    kind = declared(node, root=root)
    program = message_program = None
    error = message_error = ""
    if kind is None:
        error = "rules cannot be used on a schema without known fields"
    else:
        scope = {"self": kind, "oldSelf": optional_of(kind) if optional else kind}
        program, error = _compile(source, scope, "bool", "cel expression must evaluate to a bool", "compilation")
        text = rule.get("messageExpression")
        if text and not error:
            message_program, message_error = _compile(
                str(text),
                scope,
                "string",
                "messageExpression must evaluate to a string",
                "messageExpression compilation",
            )
    return ValidationRule(
        source,
        program,
        error,
        str(rule.get("message") or "").strip(),
        message_program,
        message_error,
        str(rule.get("reason") or "FieldValueInvalid"),
        normal_path(str(rule.get("fieldPath") or "")),
        optional,
        converter(kind) if kind is not None else None,
    )


def _compile(
    source: str, scope: dict[str, Any], wanted: str, mismatch: str, stage: str
) -> tuple[CelProgram | None, str]:
    try:
        program = compile_text(source, scope)
    except InstantiationError as error:
        return None, f"program instantiation failed: {error}"
    except CompileError as error:
        return None, f"{stage} failed: {error.shown(source)}"
    if program.type.kind != wanted:
        return None, mismatch
    return program, ""


_QUOTED: Final = re.compile(r"\['((?:[^'\\]|\\.)*)'\]")


def normal_path(path: str) -> str:
    """Return the fieldPath of a rule in the form of error paths: ``.a.b`` and ``['c']`` become ``.a.b[c]``."""
    return _QUOTED.sub(lambda match: "[" + match[1].replace("\\'", "'") + "]", path)


def check_rules(errors: list[FieldError], ruled: Ruled, value: Any, path: str, old: Any = NOTHING) -> None:
    """Add the errors of all validation rules that a value violates (rules ignore null)."""
    steps = [BUDGET]
    try:
        _walk(errors, ruled, value, path, _Former(old, old), steps)
    except BudgetError:
        errors.append(FieldError(path or WHOLE, "FieldValueInvalid", f"Invalid value: {_OUT_OF_BUDGET}"))


@dataclass(frozen=True, slots=True)
class _Former:
    """Old value at the position of a validated value; NOTHING if no old value correlates.

    ``old`` is the oldSelf of rules. ``was`` is the old value for ratcheting: an equal value is not validated.
    ``above`` is the nearest enclosing value that has an old value, and that old value.
    """

    old: Any
    was: Any
    above: tuple[Any, Any] = (NOTHING, None)

    def untouched(self, value: Any) -> bool:
        """Return whether an update left the value (or the nearest enclosing value with an old value) unchanged."""
        if self.was is NOTHING:
            return bool(self.above[0] == self.above[1])
        return bool(self.was == value)

    def part(self, value: Any, name: str) -> _Former:
        """Return the old value of an object's or map's member."""
        old = self.old if type(self.old) is dict else {}
        if self.was is NOTHING:
            return _Former(old.get(name, NOTHING), NOTHING, self.above)
        if self.above[0] is NOTHING and name in ("apiVersion", "kind"):
            # At the root, another version can be stored: these fields never count as unchanged.
            return _Former(old.get(name, NOTHING), NOTHING)
        was = self.was.get(name, NOTHING) if type(self.was) is dict else NOTHING
        return _Former(old.get(name, NOTHING), was, (value, self.was))


def _walk(errors: list[FieldError], ruled: Ruled, value: Any, path: str, former: _Former, steps: list[int]) -> None:
    if value is None:
        return
    if ruled.rules:
        _run(errors, ruled, value, path, former, steps)
    if type(value) is dict:
        for name, item in value.items():
            sub, where = ruled.properties.get(name), f"{path}.{name}" if path else name
            if sub is None and ruled.additional is not None and name not in ruled.node.properties:
                sub, where = ruled.additional, f"{path}[{name}]"
            if sub is not None:
                _walk(errors, sub, item, where, former.part(value, name), steps)
    elif type(value) is list and ruled.items is not None:
        above = former.above if former.was is NOTHING else (value, former.was)
        olds = correlated(ruled.node, value, former.old)
        weres = olds if former.was is former.old else correlated(ruled.node, value, former.was)
        for index, item in enumerate(value):
            inner = _Former(olds[index], weres[index], above)
            _walk(errors, ruled.items, item, f"{path}[{index}]", inner, steps)


def _run(errors: list[FieldError], ruled: Ruled, value: Any, path: str, former: _Former, steps: list[int]) -> None:
    old = former.old
    known = old is not NOTHING and old is not None
    for rule in ruled.rules:
        if rule.program is None:
            errors.append(_failed(ruled, value, path, f"rule compile error: {rule.error}"))
            continue
        transition = rule.transition
        if transition and not known and not rule.optional_old:
            continue
        env: dict[str, Any] = {"self": value, STEPS: steps}
        try:
            before = old
            if rule.convert is not None:
                env["self"] = rule.convert(value)
                before = rule.convert(old) if known else old
            if rule.optional_old:
                env["oldSelf"] = Option(True, before) if known else NONE
            elif known:
                env["oldSelf"] = before
            held = rule.program.run(env) is True
        except (EvalError, RecursionError) as error:
            errors.append(_failed(ruled, value, path, _evaluation(rule, str(error))))
            continue
        if not held and (transition or not former.untouched(value)):
            errors.append(_complaint(ruled, rule, value, path + rule.field_path, _message(rule, env)))


def _evaluation(rule: ValidationRule, problem: str) -> str:
    if problem.startswith("no such overload"):
        words = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{problem}': {words}: {rule.source}"
    return f"{problem} evaluating rule: {rule.source}"


def _message(rule: ValidationRule, env: dict[str, Any]) -> str:
    """Return the message of a violated rule: of its messageExpression if that succeeds, else the fixed message,
    else the rule's source."""
    if rule.message_program is not None:
        try:
            text = rule.message_program.run(env)
        except EvalError:
            text = ""
        if isinstance(text, str):
            text = text.strip()
            if text and "\n" not in text and len(text.encode()) <= _MESSAGE_LIMIT:
                return text
    return rule.message or f"failed rule: {rule.source.strip()}"


def _failed(ruled: Ruled, value: Any, path: str, detail: str) -> FieldError:
    kind = ruled.node.type
    return FieldError(path or WHOLE, "FieldValueInvalid", f"Invalid value: {shown(kind)}: {detail}")


def _complaint(ruled: Ruled, rule: ValidationRule, value: Any, path: str, detail: str) -> FieldError:
    path = path.removeprefix(".") or WHOLE
    if rule.reason == "FieldValueForbidden":
        return forbidden(path, detail)
    if rule.reason == "FieldValueRequired":
        return required(path, detail)
    structured = ruled.node.type in ("object", "array")
    if rule.reason == "FieldValueDuplicate":
        return duplicate(path, value) if not structured else FieldError(path, rule.reason, "Duplicate value")
    if structured:
        return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")
