"""Options of an embedded API server."""

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
    """Options of the server; the defaults are TLS, a new token, a free loopback port, and no data file.

    `insecure`: plain HTTP, and users without a valid token are administrators. `users` have fixed tokens, beside
    the administrator's `token` and the tokens of service accounts. `history` is the number of changes per
    resource from which watches resume. `managed_fields` is "kubectl" (fields are tracked from the first write of
    kubectl or the first server-side apply on) or "all" (always, like the real server). `native_groups` is the
    served version of the native gang API: v1alpha1 is that of 1.35, v1alpha2 of 1.36, v1beta1 of 1.37, v1 as
    planned for 1.38; v1alpha3 is served with v1beta1, like 1.37 with all feature gates (it has composite pod
    groups). Pods of a deleted node are deleted after `lost_node_delay` seconds, events `event_ttl` seconds after
    their last change.
    """

    host: str = "127.0.0.1"
    port: int = 0
    insecure: bool = False
    token: str | None = None
    users: Mapping[str, User] = field(default_factory=dict)
    data: Path | None = None
    audit_log: Path | None = None
    native_groups: Literal["v1alpha1", "v1alpha2", "v1beta1", "v1alpha3", "v1", "none"] = "v1alpha2"
    history: int = 10_000
    bookmark_interval: float = 60.0
    managed_fields: Literal["kubectl", "all"] = "kubectl"
    controllers: frozenset[str] = CONTROLLERS
    lost_node_delay: float = 40.0
    event_ttl: float = 3600.0
    clock: Clock = field(default_factory=SystemClock)
    git_version: str = "v1.36.0"
    max_body: int = 8 * 1024 * 1024
