"""CEL authorizer library for expressions of admission policies.

https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from phalanx_local.schema.cel.functions import Overload, Table, member
from phalanx_local.schema.cel.types import BOOL, STRING, Type
from phalanx_local.schema.cel.values import Authorizer, Check, Decided

AUTHORIZER: Final = Type("authorizer")
CHECK: Final = Type("authorizer_check")
_DECISION: Final = Type("authorizer_decision")


def _group(authorizer: Authorizer, group: str) -> Check:
    return Check(authorizer.decide, account=authorizer.account, group=group)


def _path(authorizer: Authorizer, path: str) -> Check:
    return Check(authorizer.decide, account=authorizer.account, path=path)


def _account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    return replace(authorizer, account=(namespace, name))


def _check(check: Check, verb: str) -> Decided:
    allowed, reason = check.decide(check, verb)
    return Decided(allowed, reason)


def _with(field: str) -> Overload:
    return member((CHECK.kind, "string"), CHECK, lambda check, value: replace(check, **{field: value}))


def authorizing() -> Table:
    """Return the CEL functions on the authorizer, its checks and its decisions."""
    return {
        "group": [member((AUTHORIZER.kind, "string"), CHECK, _group)],
        "path": [member((AUTHORIZER.kind, "string"), CHECK, _path)],
        "serviceAccount": [member((AUTHORIZER.kind, "string", "string"), AUTHORIZER, _account)],
        **{name: [_with(name)] for name in ("resource", "subresource", "namespace", "name")},
        "check": [member((CHECK.kind, "string"), _DECISION, _check)],
        "allowed": [member((_DECISION.kind,), BOOL, lambda decided: decided.allowed)],
        "reason": [member((_DECISION.kind,), STRING, lambda decided: decided.reason)],
        "errored": [member((_DECISION.kind,), BOOL, lambda decided: False)],
        "error": [member((_DECISION.kind,), STRING, lambda decided: "")],
    }
