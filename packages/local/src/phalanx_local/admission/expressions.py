"""Expressions of ValidatingAdmissionPolicies: compiled once, evaluated for each matching write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from phalanx_local.admission.policy_matching import Request
from phalanx_local.authentication.authenticator import User, account_groups, account_user
from phalanx_local.authorization import Attributes, Rbac
from phalanx_local.errors import FieldCause, wrong_value
from phalanx_local.objects import Json, mapping, sequence, text
from phalanx_local.schema.cel import (
    AUTHORIZER,
    CHECK,
    DYN,
    STEPS,
    Authorizer,
    BudgetError,
    CelProgram,
    Check,
    CompileError,
    EvalError,
    InstantiationError,
    Type,
    compile_text,
)

#: Maximum number of comprehension steps of all expressions of one policy for one write.
_BUDGET: Final = 1_000_000
_SCOPE: Final[dict[str, Type]] = {
    **dict.fromkeys(("object", "oldObject", "request", "params", "namespaceObject"), DYN),
    "variables": Type("map", DYN),
    "authorizer": AUTHORIZER,
    "authorizer.requestResource": CHECK,
}
#: As in kube-apiserver, message expressions have no authorizer, not even through a variable.
_MESSAGE_SCOPE: Final = {name: kind for name, kind in _SCOPE.items() if not name.startswith("authorizer")}


@dataclass(frozen=True, slots=True)
class Expression:
    """One CEL expression of a policy; `problem` is set instead of `program` if the expression does not compile."""

    source: str
    program: CelProgram | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """One CEL expression that must be true for an allowed write, with the message for a denied write."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """ValidatingAdmissionPolicy, or conditions of a webhook, with compiled CEL expressions."""

    name: str
    constraints: Json
    param_kind: Json
    conditions: tuple[tuple[str, Expression], ...]
    variables: dict[str, Expression]
    validations: tuple[Validation, ...]
    fails_closed: bool


def compile_policy(policy: Json) -> CompiledPolicy:
    """Compile the CEL expressions of a stored ValidatingAdmissionPolicy."""
    spec = mapping(policy.get("spec"))
    validations = [mapping(item) for item in sequence(spec.get("validations"))]
    return CompiledPolicy(
        text(mapping(policy.get("metadata")).get("name")),
        mapping(spec.get("matchConstraints")),
        mapping(spec.get("paramKind")),
        tuple(
            (text(mapping(item).get("name")), _compile(text(mapping(item).get("expression"))))
            for item in sequence(spec.get("matchConditions"))
        ),
        {
            text(mapping(item).get("name")): _compile(text(mapping(item).get("expression")), "")
            for item in sequence(spec.get("variables"))
        },
        tuple(
            Validation(
                _compile(text(item.get("expression"))),
                text(item.get("message")).strip(),
                _compile(text(item["messageExpression"]), "string", _MESSAGE_SCOPE)
                if item.get("messageExpression")
                else None,
                text(item.get("reason")) or "Invalid",
            )
            for item in validations
        ),
        spec.get("failurePolicy") != "Ignore",
    )


def compile_conditions(name: str, webhook: Json) -> CompiledPolicy:
    """Compile the matchConditions of a webhook, as a policy without validations."""
    return compile_policy({"metadata": {"name": name}, "spec": {"matchConditions": webhook.get("matchConditions")}})


def check_expressions(policy: Json) -> list[FieldCause]:
    """Return the compilation errors of a ValidatingAdmissionPolicy, each with the path of its field."""
    spec = mapping(policy.get("spec"))
    causes: list[FieldCause] = []
    for field, key, wanted, scope in (
        ("matchConditions", "expression", "bool", _SCOPE),
        ("variables", "expression", "", _SCOPE),
        ("validations", "expression", "bool", _SCOPE),
        ("validations", "messageExpression", "string", _MESSAGE_SCOPE),
    ):
        for index, item in enumerate(sequence(spec.get(field))):
            source = text(mapping(item).get(key))
            problem = _compile(source, wanted, scope).problem if source.strip() else ""
            if problem:
                causes.append(wrong_value(f"spec.{field}[{index}].{key}", source, problem))
    return causes


def _compile(source: str, wanted: str = "bool", scope: dict[str, Type] = _SCOPE) -> Expression:
    try:
        program = compile_text(source, scope)
    except InstantiationError as error:
        return Expression(source, None, f"program instantiation failed: {error}")
    except CompileError as error:
        return Expression(source, None, f"compilation failed: {error.shown(source)}")
    if wanted and program.type.kind not in (wanted, "dyn"):
        return Expression(source, None, f"must evaluate to {wanted}")
    return Expression(source, program)


class _Variables(dict[str, Any]):
    """Values of a policy's CEL variables; each value is computed when an expression first reads the variable."""

    def __init__(self, policy: CompiledPolicy, env: dict[str, Any]) -> None:
        super().__init__()
        self._policy = policy
        self._env = env

    def __contains__(self, name: object) -> bool:
        return name in self._policy.variables

    def __missing__(self, name: str) -> Any:
        expression = self._policy.variables[name]
        if expression.program is None:
            raise EvalError(f'composited variable "{name}" fails to compile: {expression.problem}')
        value = self[name] = expression.program.run(self._env)
        return value


class Evaluation:
    """Evaluation of one ValidatingAdmissionPolicy for one write and one parameter object (`params`)."""

    def __init__(self, policy: CompiledPolicy, request: Request, params: Any, user: User, rbac: Rbac) -> None:
        self._policy = policy
        env: dict[str, Any] = {
            "object": request.obj,
            "oldObject": request.old,
            "request": admission_request(request, user),
            "params": params,
            "namespaceObject": request.namespace_object,
            STEPS: [_BUDGET],
        }
        # Messages have their own variables: a variable that uses the authorizer fails there.
        self._message_env = _with_rights(policy, env, request, _no_authorizer)
        self._env = _with_rights(policy, env, request, _decider(user, rbac))

    def applies(self) -> tuple[bool, str]:
        """Return whether all match conditions of the policy are true, and the evaluation errors if no condition is
        false."""
        problems: list[str] = []
        for name, condition in self._policy.conditions:
            value, problem = self._evaluate(condition)
            if problem:
                problems.append(f'match condition "{name}": {problem}')
            elif value is not True:
                return False, ""
        return not problems, "; ".join(problems)

    def run(self) -> Iterator[tuple[str, str]]:
        """Yield reason and message of each failed validation; nothing if the policy does not match the write."""
        value, problem = self.applies()
        if problem and self._policy.fails_closed:
            yield "Invalid", problem
        if problem or not value:
            return
        for validation in self._policy.validations:
            value, problem = self._evaluate(validation.expression)
            if problem:
                if self._policy.fails_closed:
                    yield "Invalid", problem
            elif value is not True:
                yield validation.reason, self._message(validation)

    def _evaluate(self, expression: Expression, env: dict[str, Any] | None = None) -> tuple[Any, str]:
        """Return the value of an expression and "", or None and the evaluation error."""
        if expression.program is None:
            return None, f"compilation error: {expression.problem}"
        try:
            return expression.program.run(self._env if env is None else env), ""
        except (EvalError, BudgetError, RecursionError) as error:
            shown = str(error) or "running out of cost budget, no further validation rules will be run"
            return None, f"expression '{expression.source}' resulted in error: {shown}"

    def _message(self, validation: Validation) -> str:
        if validation.message_expression is not None:
            value, _ = self._evaluate(validation.message_expression, self._message_env)
            if isinstance(value, str) and value.strip() and "\n" not in value:
                return value.strip()
        return validation.message or f"failed expression: {validation.expression.source.strip()}"


def _with_rights(policy: CompiledPolicy, env: dict[str, Any], request: Request, decide: Any) -> dict[str, Any]:
    """Return the environment for CEL expressions, with the variable `authorizer` that calls `decide`."""
    type_ = request.version.type
    own = {
        **env,
        "authorizer": Authorizer(decide),
        "authorizer.requestResource": Check(
            decide,
            group=type_.group,
            resource=type_.plural,
            subresource=request.subresource,
            namespace=request.namespace,
            name=request.name,
        ),
    }
    own["variables"] = _Variables(policy, own)
    return own


def _no_authorizer(check: Check, verb: str) -> tuple[bool, str]:
    raise EvalError("no such attribute(s): authorizer")


def admission_request(request: Request, user: User) -> Json:
    """Return the `request` of an AdmissionReview without the fields `object` and `oldObject`."""
    type_ = request.version.type
    kind = {"group": type_.group, "version": request.version.name, "kind": type_.kind}
    if request.subresource and request.obj is not None:
        group, _, version = text(request.obj.get("apiVersion")).rpartition("/")
        kind = {"group": group, "version": version, "kind": text(request.obj.get("kind"))}
    resource = {"group": type_.group, "version": request.version.name, "resource": type_.plural}
    return {
        "kind": kind,
        "resource": resource,
        "subResource": request.subresource,
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
        },
        "dryRun": request.dry_run,
    }


def _decider(user: User, rbac: Rbac) -> Any:
    def decide(check: Check, verb: str) -> tuple[bool, str]:
        subject = user
        if check.account:
            namespace, name = check.account
            subject = User(account_user(namespace, name), account_groups(namespace))
        asked = Attributes(
            verb, check.group, check.resource, check.subresource, check.namespace, check.name, check.path
        )
        return rbac.authorize(subject, asked)

    return decide
