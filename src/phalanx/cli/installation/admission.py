"""`phalanx install --policies`: admission policies that keep tenants to what is theirs (docs/security.md)."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

from phalanx.model.text.yaml_text import decode_yaml_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phalanx.cli.installation.manifests import Manifest

GROUP_VERSION = "admissionregistration.k8s.io/v1"
#: Stands between quotes in a list of CEL. The chart puts its names there in the same way.
_SCHEDULERS = "${schedulers}"
_BETWEEN = '", "'
# How conditions name them: in a list, and in earlier versions by a comparison, between the other quotes.
_NAMED = re.compile(r"""object\.spec\.schedulerName (?:== ('[^']*')|in \[([^\]]*)\])""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def policies(scheduler_names: Sequence[str], labels: Mapping[str, str]) -> list[Manifest]:
    """All of them, each with its binding. Pods of other schedulers than `scheduler_names` are left alone.

    Who may write what only schedulers write, use queues or administrate quotas is asked of the API server's
    authorizer, so that it is said in roles and nowhere else.
    """
    directory = resources.files("phalanx.cli.installation").joinpath("policies")
    found: list[Manifest] = []
    names = _BETWEEN.join(scheduler_names)
    for name in sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(".yaml")):
        text = directory.joinpath(name).read_text(encoding="utf-8").replace(_SCHEDULERS, names)
        for manifest in decode_yaml_all(text):
            manifest["metadata"]["labels"] = dict(labels)
            found.append(manifest)
    return found


def guarded_schedulers(policy: Manifest) -> list[str]:
    """Of which schedulers a policy looks at pods, as its conditions say; none where it asks for no scheduler."""
    names: list[str] = []
    for condition in policy.get("spec", {}).get("matchConditions") or ():
        for one, several in _NAMED.findall(condition.get("expression", "")):
            names += ["".join(each) for each in _QUOTED.findall(one or several)]
    return list(dict.fromkeys(filter(None, names)))
