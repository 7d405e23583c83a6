"""Writes what the chart and the plain manifests share with `phalanx install`: `python -m charts.generate`.

Rights and definitions are stated in the code once (src/phalanx/cli/installation/); a test compares these files
with it. `deploy/phalanx.yaml` is the chart with its defaults, rendered where helm is named:
`python -m charts.generate --helm PATH`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from phalanx.cli.installation import (
    accounting_manifests,
    admission,
    dashboard_manifests,
    hub_manifests,
    manifests,
    visibility_manifests,
)
from phalanx.cli.installation.install import all_rights
from phalanx.cli.installation.people_manifests import PEOPLE
from phalanx.cli.services.controllers import controllers
from phalanx.cli.services.dashboard import dashboard
from phalanx.cli.services.hub import hub
from phalanx.cli.services.scheduler import scheduler
from phalanx.cli.services.webhook import webhook
from phalanx.dialects.api_groups import PHALANX
from phalanx.kube.own_objects import LABELS, default_lease
from phalanx.scheduling.framework.vocabulary import ACTION_ARGUMENTS, RETIRED_ACTIONS

ROOT = Path(__file__).parent.parent
CHART = ROOT / "charts" / "phalanx"
NAMESPACE = "phalanx-system"
_HEAD = "# Made by `python -m charts.generate`.\n"
_FOREIGN = """\
# Kinds of other projects. `kubectl create -f` says AlreadyExists of those that are there, and leaves them as they
# are; `kubectl apply` would put these in the place of theirs.
"""
#: What the templates put the release's namespace and the schedulers' names in the place of.
_RELEASE = "${namespace}"
_SCHEDULERS = "${schedulers}"
_PREFIX = "${prefix}"
_LEASE = "${lease}"
#: Prefix of the names of cluster-wide objects that each release creates for itself.
_OWN = "${own}"
#: Kinds without a namespace, and the namespace of others, where two releases meet.
_MEETING_KINDS = (
    "ClusterRole",
    "ClusterRoleBinding",
    "FlowSchema",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_MEETING_NAMESPACE = "kube-system"
#: Beside the roles of people: what all releases have in common.
_KEPT = "helm.sh/resource-policy"
#: The parts that run out of the chart's own image.
_PARTS = (scheduler, controllers, webhook, dashboard, hub)
_SHARED = ("phalanx-podgroups-edit", "phalanx-podgroups-view", "phalanx-signing-keys")


def files() -> dict[Path, str]:
    """path -> content of all that is made from the code alone."""
    every = [each for each in all_rights("phalanx", _RELEASE) if each["kind"] != "Namespace"]
    people = [each for each in every if each["metadata"]["name"] in PEOPLE]
    shared = [each for each in every if each["metadata"]["name"] in _SHARED]
    rights = [each for each in every if each not in people and each not in shared]
    central = [each for each in hub_manifests.hub_access(_RELEASE) if each["kind"] != "Namespace"]
    member = [each for each in hub_manifests.member_access(_RELEASE) if each["kind"] != "Namespace"]
    page = dashboard_manifests.dashboard_access(_RELEASE)
    for each in (*rights, *page):
        for rule in each.get("rules", ()):
            _open_names(rule)
    orders = dashboard_manifests.order_access(_RELEASE)
    visibility = visibility_manifests.visibility_access(_RELEASE)
    accounts = accounting_manifests.accounting_access("phalanx-accounting", _RELEASE)
    policies = admission.policies([_SCHEDULERS], LABELS)
    definitions = manifests.definitions()
    for each in (*rights, *page, *orders, *visibility, *accounts, *central, *policies):
        _own_name(each)
    for each in shared:
        if each["kind"] == "Secret":
            # The schedulers of other releases sign with these keys too.
            each["metadata"]["annotations"] = {_KEPT: "keep"}
    return {
        CHART / "files" / "rights.yaml": _text(rights),
        CHART / "files" / "people.yaml": _text(people),
        CHART / "files" / "shared.yaml": _text(shared),
        CHART / "files" / "dashboard-rights.yaml": _text(page),
        CHART / "files" / "dashboard-order-rights.yaml": _text(orders),
        CHART / "files" / "visibility-rights.yaml": _text(visibility),
        CHART / "files" / "accounting-rights.yaml": _text(accounts),
        CHART / "files" / "admission-policies.yaml": _text(policies),
        CHART / "files" / "options.yaml": _HEAD + yaml.safe_dump({each.name: _options(each) for each in _PARTS}),
        CHART / "files" / "actions.yaml": _HEAD + yaml.safe_dump(sorted({*ACTION_ARGUMENTS, *RETIRED_ACTIONS})),
        CHART / "files" / "hub-rights.yaml": _text(central),
        CHART / "files" / "member-rights.yaml": _text(member),
        ROOT / "deploy" / "crds.yaml": _text([each for each in definitions if _is_ours(each)]),
        ROOT / "deploy" / "foreign-crds.yaml": _FOREIGN
        + _text([each for each in definitions if not _is_ours(each)]),
        ROOT / "image" / "requirements.txt": _requirements(),
    }


def _options(command: click.Command) -> list[str]:
    """How a command spells its options."""
    spelled = {each for option in command.params for each in (*option.opts, *option.secondary_opts)}
    return sorted(each for each in {*spelled, "--help"} if each.startswith("-"))


def _is_ours(definition: dict[str, Any]) -> bool:
    """Whether no other project has a definition of this name."""
    group: str = definition["spec"]["group"]
    return group == PHALANX


def _open_names(rule: dict[str, Any]) -> None:
    """The scheduler's lease and memory are called after schedulerNames, which only the release knows."""
    names = rule.get("resourceNames", [])
    if rule["resources"] == ["configmaps"]:
        rule["resourceNames"] = [re.sub("^phalanx-", f"{_PREFIX}-", name) for name in names]
    elif rule["resources"] == ["leases"]:
        rule["resourceNames"] = [_LEASE if name == default_lease(["phalanx"]) else name for name in names]
    if not names:
        rule.pop("resourceNames", None)


def _own_name(each: dict[str, Any]) -> None:
    """Prefix names of objects that two releases would share, and references to them, with the release."""
    metadata = each["metadata"]
    if each["kind"] not in _MEETING_KINDS and metadata.get("namespace") != _MEETING_NAMESPACE:
        return
    metadata["name"] = re.sub("^phalanx-", f"{_OWN}-", metadata["name"])
    for holder, field in ((each.get("roleRef"), "name"), (each.get("spec"), "policyName")):
        if holder and field in holder:
            holder[field] = re.sub("^phalanx-", f"{_OWN}-", holder[field])


def _requirements() -> str:
    """Return the pins of `constraints.txt` for the dependencies of the project, and for their dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    waiting, wanted = [Requirement(each) for each in project["dependencies"]], set[str]()
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in wanted:
            wanted.add(name)
            asked = map(Requirement, _required_by(name))
            waiting += [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    pins = re.split(r"^(?=\S)", (ROOT / "constraints.txt").read_text("utf-8"), flags=re.MULTILINE)
    return _HEAD + "".join(pin for pin in pins if canonicalize_name(pin.partition("==")[0]) in wanted)


def _required_by(package: str) -> list[str]:
    """Return the requirements of an installed package. A package with a substitute at run time (uvloop) can be
    missing: it has none."""
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        if package != "uvloop":
            raise
        return []


def rendered(helm: str) -> str:
    """The chart with its defaults as plain objects, behind their namespace; definitions are in crds.yaml."""
    command = [helm, "template", "phalanx", str(CHART), "--namespace", NAMESPACE, "--no-hooks"]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    # (No queues: together with their definition no API server takes them. The scheduler makes them when it starts.)
    objects = [namespace, *filter(None, yaml.safe_load_all(made))]
    for each in objects:
        # Nothing here is Helm's.
        for labels in (each["metadata"].get("labels", {}), _template_labels(each)):
            for key in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
                labels.pop(key, None)
        if each["metadata"].get("annotations", {}).pop(_KEPT, ""):
            each["metadata"].pop("annotations")
    return _text(objects)


def _template_labels(manifest: dict[str, Any]) -> dict[str, str]:
    template = manifest.get("spec", {}).get("template", {}) if manifest["kind"] == "Deployment" else {}
    labels: dict[str, str] = template.get("metadata", {}).get("labels", {})
    return labels


def _text(objects: list[dict[str, Any]]) -> str:
    return _HEAD + yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True, allow_unicode=True, width=110)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m charts.generate", description=__doc__)
    parser.add_argument("--helm", help="the helm binary, to render deploy/phalanx.yaml")
    options = parser.parse_args()
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if options.helm:
        (ROOT / "deploy" / "phalanx.yaml").write_text(rendered(options.helm), encoding="utf-8")


if __name__ == "__main__":
    main()
