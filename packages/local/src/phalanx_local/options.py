"""What an embedded API server can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from phalanx_local.authentication.authenticator import User
from phalanx_local.clock import Clock, SystemClock

CONTROLLERS = frozenset(
    (
        "garbage",
        "namespaces",
        "definitions",
        "podgc",
        "disruption",
        "podgroups",
        "resourceclaims",
        "replicasets",
        "deployments",
        "jobs",
        "eventttl",
        "clusterroles",
        "resourcequotas",
        "nodelifecycle",
        "volumes",
        "volumeprotection",
        "ephemeralvolumes",
        "statefulsets",
    )
)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Defaults give a TLS server with a fresh token on a free loopback port, in memory.

    `insecure` serves plain HTTP, and who shows no valid token is the administrator. `users` are known by fixed
    tokens, beside the administrator's `token` and the tokens of service accounts. `history` counts changes kept
    per resource, for watches to resume from. `managed_fields` is "kubectl" (fields are tracked from the first write
    of kubectl or the first server-side apply on) or "all" (always, as the real server does). `native_groups` is the
    version of the native gang API that is served: v1alpha1 as 1.35 does, v1alpha2 as 1.36, v1beta1 as 1.37; with
    v1alpha3 that version and v1beta1, as 1.37 with every gate on (it has groups of groups). Pods of a node that is
    gone are deleted after `lost_node_delay` seconds, events `event_ttl` seconds after their last change.
    """

    host: str = "127.0.0.1"
    port: int = 0
    insecure: bool = False
    token: str | None = None
    users: Mapping[str, User] = field(default_factory=dict)
    data: Path | None = None
    audit_log: Path | None = None
    native_groups: Literal["v1alpha1", "v1alpha2", "v1beta1", "v1alpha3", "none"] = "v1alpha2"
    history: int = 10_000
    bookmark_interval: float = 60.0
    managed_fields: Literal["kubectl", "all"] = "kubectl"
    controllers: frozenset[str] = CONTROLLERS
    lost_node_delay: float = 40.0
    event_ttl: float = 3600.0
    clock: Clock = field(default_factory=SystemClock)
    git_version: str = "v1.36.0"
    max_body: int = 8 * 1024 * 1024
