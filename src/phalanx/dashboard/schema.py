"""JSON schema of all responses of `/api/v1`, generated from their types."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dashboard.rows.entries import (
    ANSWERS,
    ROWS,
    BulkOrderRequest,
    ErrorAnswer,
    OrderRequest,
    TableAnswer,
    TableDelta,
    WhatIfRequest,
)
from phalanx.reports.whatif.remote import WhatIfCommand


def schema() -> dict[str, Any]:
    """Return a JSON schema (2020-12) with the types in `$defs`; `answers` maps each path to its type."""
    names = {
        **ANSWERS,
        **{f"GET /api/v1/tables/{name}": TableAnswer[row] for name, row in ROWS.items()},  # type: ignore[valid-type]
        **{f"GET /api/v1/stream: {name}": TableDelta[row] for name, row in ROWS.items()},  # type: ignore[valid-type]
        "any refusal": ErrorAnswer,
        "body of POST /api/v1/what-if": WhatIfRequest,
        "body of POST /api/v1/orders/{verb}": OrderRequest,
        "body of POST /api/v1/bulk-orders/{verb}": BulkOrderRequest,
        "body of POST /api/v1/commands/what-if": WhatIfCommand,
    }
    schemas, components = msgspec.json.schema_components(list(names.values()), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "phalanx dashboard, /api/v1",
        "answers": dict(zip(names, schemas, strict=True)),
        "$defs": components,
    }
