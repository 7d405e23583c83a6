"""Manifests of `phalanx install --policies`: admission policies that isolate tenants (docs/security.md)."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

from phalanx.model.text.yaml_text import decode_yaml_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phalanx.cli.installation.manifests import Manifest

GROUP_VERSION = "admissionregistration.k8s.io/v1"
#: Placeholder inside a quoted CEL list; the Helm chart replaces it in the same way.
_SCHEDULERS = "${schedulers}"
_SEPARATOR = '", "'
# Scheduler names in match conditions: a double-quoted list; earlier versions had a comparison in single quotes.
_NAMED = re.compile(r"""object\.spec\.schedulerName (?:== ('[^']*')|in \[([^\]]*)\])""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def policies(scheduler_names: Sequence[str], labels: Mapping[str, str]) -> list[Manifest]:
    """Return all admission policies and their bindings for the pods of `scheduler_names`; other pods are not
    checked.

    The policies ask the API server's authorizer who is allowed to write scheduler fields, use queues or change
    quotas. So these rights are defined in RBAC roles only.
    """
    directory = resources.files("phalanx.cli.installation").joinpath("policies")
    manifests: list[Manifest] = []
    names = _SEPARATOR.join(scheduler_names)
    for name in sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(".yaml")):
        text = directory.joinpath(name).read_text(encoding="utf-8").replace(_SCHEDULERS, names)
        for manifest in decode_yaml_all(text):
            manifest["metadata"]["labels"] = dict(labels)
            manifests.append(manifest)
    return manifests


def guarded_schedulers(policy: Manifest) -> list[str]:
    """Return the schedulers whose pods an admission policy checks; none if it has no condition on schedulers."""
    names: list[str] = []
    for condition in policy.get("spec", {}).get("matchConditions") or ():
        for compared, listed in _NAMED.findall(condition.get("expression", "")):
            names += ["".join(groups) for groups in _QUOTED.findall(compared or listed)]
    return list(dict.fromkeys(filter(None, names)))
