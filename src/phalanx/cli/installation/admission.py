"""`phalanx install --policies`: admission policies that keep tenants to what is theirs (docs/security.md)."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from phalanx.model.text.yaml_text import decode_yaml_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phalanx.cli.installation.manifests import Manifest

GROUP_VERSION = "admissionregistration.k8s.io/v1"
_SCHEDULER = "${scheduler}"


def policies(scheduler_name: str, labels: Mapping[str, str]) -> list[Manifest]:
    """All of them, each with its binding. Pods of other schedulers than `scheduler_name` are left alone.

    Who may write what only schedulers write, use queues or administrate quotas is asked of the API server's
    authorizer, so that it is said in roles and nowhere else.
    """
    directory = resources.files("phalanx.cli.installation").joinpath("policies")
    found: list[Manifest] = []
    for name in sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(".yaml")):
        text = directory.joinpath(name).read_text(encoding="utf-8").replace(_SCHEDULER, scheduler_name)
        for manifest in decode_yaml_all(text):
            manifest["metadata"]["labels"] = dict(labels)
            found.append(manifest)
    return found
