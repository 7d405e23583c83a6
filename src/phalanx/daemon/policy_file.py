"""Policy of a running scheduler: read at the start and reloaded while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import installed_dialects
from phalanx.kube.causes import cause_text
from phalanx.model.gang import MatchPolicy
from phalanx.model.text.decoding import quoted
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy.lint import sole_policy
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy

log = logging.getLogger(__name__)

# Seconds between two reads of the file.
_PERIOD = 1.0


class PolicyFile:
    """Policy file in force; `path` is "" for the built-in policy, which never changes.

    Raises PolicyError when the first read fails; `reload_if_changed` never raises. `problem` is the reason why the
    current file is not in force, "" if it is. `changed` is called with each new policy.
    """

    def __init__(self, path: str, changed: Callable[[Policy], None] = lambda policy: None) -> None:
        self.path = path
        self.problem = ""
        self._changed = changed
        self._text = _read(path)
        self.policy = parse_policy(self._text, path)
        _log_inactive(self.policy)

    @property
    def dialects(self) -> DialectOptions:
        return dialect_options(self.policy)

    @property
    def text(self) -> str:
        """Text of the policy file or of the built-in policy."""
        return self._text

    async def run(self) -> None:
        """Reload the policy file after changes until cancelled; return at once for the built-in policy."""
        while self.path:
            await asyncio.sleep(_PERIOD)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Put a changed policy file in force; report an invalid file once and keep the old policy."""
        if not self.path:
            return
        try:
            text = _read(self.path)
            if text == self._text:
                self.problem = ""
                return
            policy = parse_policy(text, self.path)
        except PolicyError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                log.error("the policy file is invalid; the old policy stays in force:\n%s", self.problem)
            return
        if dict(policy.dialects) != dict(self.policy.dialects):
            log.warning("policy: a change of phalanx.dialects takes effect at the next start")
        try:
            self._changed(policy)
        except Exception:
            # A plugin cannot run in this cluster.
            self.problem, self._text = "it cannot be put in force", text
            log.exception("the policy file is invalid; the old policy stays in force")
            self._changed(self.policy)
            return
        self.problem, self._text, self.policy = "", text, policy
        _log_inactive(policy)
        log.info("policy reloaded from %s", self.path)


def read_policy(path: str) -> Policy:
    """Read the policy from a file, also a ConfigMap's file; return the built-in policy for "". Raises
    PolicyError."""
    return parse_policy(read_policy_text(path), path)


def read_policy_text(path: str) -> str:
    """Return the text of a policy file. Raises PolicyError."""
    return sole_policy(_read(path), path)


def parse_policy(text: str, source: str) -> Policy:
    """Parse a policy; `source` is its name in errors. Raises PolicyError."""
    policy = load_policy(text, source) if source else load_policy(text)
    dialect_options(policy)
    return policy


def dialect_options(policy: Policy) -> DialectOptions:
    """Return the options for reading API objects (phalanx.dialects) in a policy. Raises PolicyError."""
    known = [naming.rules.name for dialect in installed_dialects() for naming in dialect.namings]
    stated, words = policy.dialects.get("matchPolicies"), [str(policy_name.value) for policy_name in MatchPolicy]
    for name, word in stated.items() if isinstance(stated, Mapping) else ():
        if name not in known:
            raise PolicyError(
                f"phalanx.dialects: matchPolicies: unknown name {quoted(name)}; expected one of {', '.join(known)}"
            )
        if word not in words:
            raise PolicyError(
                f"phalanx.dialects: matchPolicies: {name}: unknown value {quoted(word)}; "
                f"expected one of {', '.join(words)}"
            )
    try:
        options = msgspec.convert(dict(policy.dialects), DialectOptions)
    except msgspec.ValidationError as error:
        raise PolicyError(f"phalanx.dialects: {error}") from error
    if "exceededRunTimes" in policy.dialects:
        raise PolicyError("phalanx.dialects: write exceededRunTimes beside dialects: phalanx.exceededRunTimes")
    options = msgspec.structs.replace(options, enforces_run_times=policy.exceeded_run_times == "kill")
    rules = ["*", *(rule.name for dialect in installed_dialects() for rule in dialect.workloads)]
    for name in sorted(options.ungrouped):
        if name not in rules:
            raise PolicyError(
                f"phalanx.dialects: ungrouped: unknown name {quoted(name)}; expected one of {', '.join(rules)}"
            )
    return options


def _read(path: str) -> str:
    if not path:
        return DEFAULT_POLICY
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {cause_text(error)}") from error


def _log_inactive(policy: Policy) -> None:
    for sentence in policy.inactive:
        log.warning("policy: %s", sentence)
