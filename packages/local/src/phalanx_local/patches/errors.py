"""Errors of patches."""

from __future__ import annotations

import json
from typing import Any


class PatchError(ValueError):
    """Patch that cannot be applied; ``code`` is the HTTP status of kube-apiserver.

    Code 400: the patch itself is malformed. 422: it is well formed but does not fit the object. 500: an error
    without a more precise status in kube-apiserver (an unknown merge directive, for example).
    """

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class ApplyConflict(Exception):  # noqa: N818 - the API calls this outcome a conflict, not an error
    """Server-side apply that would change fields of other managers.

    ``conflicts`` contains (manager, field path) pairs, sorted by manager, paths in object order. ``causes``
    contains the conflicts as (field path, sentence) for ``status.details.causes`` with reason
    ``FieldManagerConflict``. The message is the text that kubectl prints.
    """

    def __init__(self, conflicts: list[tuple[str, str]], described: list[str]) -> None:
        self.conflicts = conflicts
        self.causes = [
            (path, f"conflict with {words}") for (_, path), words in zip(conflicts, described, strict=True)
        ]
        if len(conflicts) == 1:
            text = f"Apply failed with 1 conflict: conflict with {described[0]}: {conflicts[0][1]}"
        else:
            lines: list[str] = []
            previous = None
            for (_, path), words in zip(conflicts, described, strict=True):
                if words != previous:
                    lines.append(f"conflicts with {words}:")
                    previous = words
                lines.append(f"- {path}")
            text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
        super().__init__(text)
        self.message = text


def brief(value: Any) -> str:
    """Format a value as compact JSON for an error message."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
