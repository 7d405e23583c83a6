"""The notation of the tables.

A table begins with comments (#) that name its source. Then, a line each:

    case NAME                   begins a case; objects before the first case belong to every case
    node NAME key=value ...     a node with labels; then features
    pod NAME on=NODE ns=SPACE key=value ...   an existing pod; without on= it waits
    new key=value ...           the new pod
    claim|volume|class|driver|csinode|attachment|namespace {...}   another object, as JSON
    no NODE ...                 nodes that the plugin rejects; it accepts all other nodes
    scores NODE=NUMBER ...      the plugin's scores of the nodes, normalised

Features follow the labels, each after " ; ":

    gone                        is being deleted
    cordoned                    accepts no new pods
    taint KEY=VALUE:EFFECT      (also KEY:EFFECT)
    offers NAME=AMOUNT ...      allocatable (by default a node offers plenty)
    asks NAME=AMOUNT ...        a container with requests; init-asks, sidecar-asks, level-asks, overhead likewise
    tolerates KEY=VALUE:EFFECT  (KEY? for Exists, KEY<N or KEY>N to compare; ":EFFECT" may be left out)
    selects KEY=VALUE ...       nodeSelector
    needs TERM                  a term of the required node affinity; prefers WEIGHT TERM likewise
    spread SKEW KEY SELECTOR [soft] [min=N] [affinity=POLICY] [taints=POLICY] [keys=K|K]
    near KEY SELECTOR [in=NS|NS] [spaces=SELECTOR] [weight=N]      pod affinity, preferred where it has a weight
    apart ...                   pod anti-affinity likewise
    port PROTOCOL/ADDRESS/PORT  a host port; sidecar-port and init-port likewise
    image NAME                  a container of this image (of a node: image BYTES NAME ...); init-image likewise
    uses CLAIM                  a volume of a PersistentVolumeClaim
    with {...}                  more of the spec, as JSON

A SELECTOR or TERM is "nil", "{}" or requirements with commas between them: key=value (matchLabels), key? (Exists),
key! (DoesNotExist), key:in:a|b, key:notin:a|b, key>n, key<n; @name:in:a|b is the field metadata.name.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential.oracle.world import Wire, World

_PLENTY = {"cpu": "1000", "memory": "1Ti", "pods": "1000", "ephemeral-storage": "1Ti"}
_KINDS = {
    "claim": "claims",
    "volume": "volumes",
    "class": "classes",
    "driver": "csi_drivers",
    "csinode": "csi_nodes",
    "attachment": "attachments",
    "namespace": "namespaces",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Case:
    name: str
    world: World
    pod: Wire = field(default_factory=dict)
    out: set[str] | None = None
    scores: dict[str, int] | None = None


def table(name: str) -> list[Case]:
    """The cases of tests/differential/tables/NAME.txt."""
    return read((Path(__file__).parent / f"{name}.txt").read_text(), f"{name}.txt")


def one(text: str) -> Case:
    """Parse a single case from its lines."""
    (case,) = read(f"case\n{text}", "the case")
    return case


def read(text: str, source: str) -> list[Case]:
    common, cases = Case("", World()), list[Case]()
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "case":
            cases.append(copy.deepcopy(common))
            cases[-1].name = rest
            continue
        try:
            _take(cases[-1] if cases else common, word, rest)
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(f"{source}, line {number}: {error}: {line}") from error
    for case in cases:
        if case.pod:
            case.world.pods.append(case.pod)
        _name_spaces(case.world)
    return cases


def _take(case: Case, word: str, rest: str) -> None:
    world = case.world
    match word:
        case "node":
            world.nodes.append(_node(rest))
        case "pod":
            world.pods.append(_pod(rest))
        case "new":
            case.pod = _pod(f"new {rest}")
            case.pod["metadata"]["uid"] = "new"
        case "no":
            case.out = set(rest.split())
        case "scores":
            case.scores = {node: int(score) for node, score in (entry.split("=") for entry in rest.split())}
        case _:
            entry = json.loads(rest)
            getattr(world, _KINDS[word]).append(entry)


def _name_spaces(world: World) -> None:
    """Every namespace that a pod is in exists."""
    known = {entry["metadata"]["name"] for entry in world.namespaces}
    for pod in world.pods:
        name = pod["metadata"]["namespace"]
        if name not in known:
            known.add(name)
            world.namespaces.append({"metadata": {"name": name, "labels": {}}})


def _node(text: str) -> Wire:
    head, *features = text.split(" ; ")
    name, *labels = head.split()
    node: Wire = {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": dict(_pairs(labels))},
        "spec": {},
        "status": {"allocatable": dict(_PLENTY)},
    }
    for feature in features:
        word, *arguments = feature.split()
        match word:
            case "cordoned":
                node["spec"]["unschedulable"] = True
            case "taint":
                node["spec"].setdefault("taints", []).append(_taint(arguments[0]))
            case "offers":
                node["status"]["allocatable"] = dict(_pairs(arguments))
            case "image":
                entry = {"names": arguments[1:], "sizeBytes": int(arguments[0])}
                node["status"].setdefault("images", []).append(entry)
            case _:
                raise ValueError(f"unknown feature {word}")
    return node


def _pod(text: str) -> Wire:
    head, *features = text.split(" ; ")
    name, *labels = head.split()
    read = dict(_pairs(labels))
    node, space = read.pop("on", ""), read.pop("ns", "default")
    pod: Wire = {
        "metadata": {"name": name, "namespace": space, "uid": f"{space}/{name}", "labels": read},
        "spec": {"schedulerName": "phalanx", "containers": []},
        "status": {"phase": "Running" if node else "Pending"},
    }
    if node:
        pod["spec"]["nodeName"] = node
    for feature in features:
        word, _, rest = feature.partition(" ")
        if word == "gone":
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif word == "with":
            pod["spec"] |= json.loads(rest)
        else:
            _constrain(pod["spec"], word, rest.split())
    for at, container in enumerate([*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]):
        container.setdefault("name", f"c{at}")
    return pod


def _constrain(spec: Wire, word: str, arguments: list[str]) -> None:
    match word:
        case "tolerates":
            spec.setdefault("tolerations", []).append(_toleration(arguments[0]))
        case "selects":
            spec["nodeSelector"] = dict(_pairs(arguments))
        case "needs":
            required = _affinity(spec, "nodeAffinity").setdefault(_REQUIRED, {"nodeSelectorTerms": []})
            required["nodeSelectorTerms"].append(_node_term(arguments[0]))
        case "prefers":
            entry = {"weight": int(arguments[0]), "preference": _node_term(arguments[1])}
            _affinity(spec, "nodeAffinity").setdefault(_PREFERRED, []).append(entry)
        case "spread":
            spec.setdefault("topologySpreadConstraints", []).append(_spread(arguments))
        case "near" | "apart":
            _pod_term(_affinity(spec, "podAffinity" if word == "near" else "podAntiAffinity"), arguments)
        case "asks" | "init-asks" | "sidecar-asks":
            container: Wire = {"resources": {"requests": dict(_pairs(arguments))}}
            _contain(spec, word.removesuffix("asks"), container)
        case "level-asks":
            spec["resources"] = {"requests": dict(_pairs(arguments))}
        case "overhead":
            spec["overhead"] = dict(_pairs(arguments))
        case "port" | "sidecar-port" | "init-port":
            _contain(spec, word.removesuffix("port"), {"ports": [_port(entry) for entry in arguments]})
        case "image" | "init-image":
            _contain(spec, word.removesuffix("image"), {"image": arguments[0]})
        case "uses":
            volume = {"name": arguments[0], "persistentVolumeClaim": {"claimName": arguments[0]}}
            spec.setdefault("volumes", []).append(volume)
        case _:
            raise ValueError(f"unknown feature {word}")


def _contain(spec: Wire, kind: str, container: Wire) -> None:
    if kind == "sidecar-":
        container["restartPolicy"] = "Always"
    if kind:
        spec.setdefault("initContainers", []).append(container)
    else:
        spec["containers"].append(container)


def _affinity(spec: Wire, kind: str) -> Wire:
    found: Wire = spec.setdefault("affinity", {}).setdefault(kind, {})
    return found


def _spread(arguments: list[str]) -> Wire:
    skew, key, selector, *options = arguments
    constraint: Wire = {"maxSkew": int(skew), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    if selector != "nil":
        constraint["labelSelector"] = _selector(selector)
    for option in options:
        name, _, value = option.partition("=")
        match name:
            case "soft":
                constraint["whenUnsatisfiable"] = "ScheduleAnyway"
            case "min":
                constraint["minDomains"] = int(value)
            case "affinity":
                constraint["nodeAffinityPolicy"] = value
            case "taints":
                constraint["nodeTaintsPolicy"] = value
            case "keys":
                constraint["matchLabelKeys"] = value.split("|")
    return constraint


def _pod_term(affinity: Wire, arguments: list[str]) -> None:
    key, selector, *options = arguments
    term: Wire = {"topologyKey": key}
    if selector != "nil":
        term["labelSelector"] = _selector(selector)
    weight = 0
    for option in options:
        name, _, value = option.partition("=")
        match name:
            case "in":
                term["namespaces"] = value.split("|")
            case "spaces":
                term["namespaceSelector"] = _selector(value)
            case "weight":
                weight = int(value)
    if weight:
        affinity.setdefault(_PREFERRED, []).append({"weight": weight, "podAffinityTerm": term})
    else:
        affinity.setdefault(_REQUIRED, []).append(term)


_REQUIREMENT = re.compile(
    r"^(?P<key>[^=?!:<>]+)(?:(?P<mark>[?!])|=(?P<value>.*)|:(?P<in>in|notin):(?P<values>.*)|(?P<sign>[<>])(?P<bound>.*))$"
)


def _selector(text: str) -> Wire:
    selector: Wire = {}
    for entry in _expressions(text):
        if entry["operator"] == "=":
            selector.setdefault("matchLabels", {})[entry["key"]] = entry["values"][0]
        else:
            selector.setdefault("matchExpressions", []).append(entry)
    return selector


def _node_term(text: str) -> Wire:
    term: Wire = {}
    for entry in _expressions(text):
        if entry["key"].startswith("@"):
            term.setdefault("matchFields", []).append({**entry, "key": f"metadata.{entry['key'][1:]}"})
        else:
            term.setdefault("matchExpressions", []).append(entry)
    return term


def _expressions(text: str) -> Iterator[dict[str, Any]]:
    for part in [] if text == "{}" else text.split(","):
        match = _REQUIREMENT.match(part)
        if match is None:
            raise ValueError(f"{part!r} is no requirement")
        key = match["key"]
        if match["mark"]:
            yield {"key": key, "operator": "Exists" if match["mark"] == "?" else "DoesNotExist"}
        elif match["in"]:
            yield {
                "key": key,
                "operator": "In" if match["in"] == "in" else "NotIn",
                "values": match["values"].split("|"),
            }
        elif match["sign"]:
            yield {"key": key, "operator": "Gt" if match["sign"] == ">" else "Lt", "values": [match["bound"]]}
        else:
            yield {"key": key, "operator": "=", "values": [match["value"]]}


def _taint(text: str) -> Wire:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _toleration(text: str) -> Wire:
    match = re.match(r"^(?P<key>[^=?<>:]*)(?P<sign>[=?<>])(?P<value>[^:]*)(?::(?P<effect>.*))?$", text)
    if match is None:
        raise ValueError(f"{text!r} is no toleration")
    operators = {"=": "Equal", "?": "Exists", "<": "Lt", ">": "Gt"}
    toleration: Wire = {"key": match["key"], "operator": operators[match["sign"]], "value": match["value"]}
    if match["effect"]:
        toleration["effect"] = match["effect"]
    return toleration


def _port(text: str) -> Wire:
    protocol, address, port = text.split("/")
    return {"protocol": protocol, "hostIP": address, "hostPort": int(port), "containerPort": int(port)}


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"{word!r} is not key=value")
        yield key, value
