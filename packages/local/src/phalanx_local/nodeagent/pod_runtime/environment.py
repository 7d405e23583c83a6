"""Environment and command line of a container that runs as a local process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import QuantityError, parse_quantity
from phalanx_local.nodeagent.core_v1 import V1Container, V1EnvVarSource, V1Pod, V1ResourceFieldRef
from phalanx_local.nodeagent.pod_runtime.config_objects import CONFIG_MAP, NO_OBJECTS, SECRET, ConfigObjects

#: Variables of the machine that a container image would define otherwise.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "VIRTUAL_ENV", "LD_LIBRARY_PATH")

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)$]*)\))")
_KEYED = re.compile(r"metadata\.(?P<field>labels|annotations)\['(?P<key>[^']+)'\]")


class ContainerConfigError(ValueError):
    """Environment setting of a container that local processes do not support; the text names the variable."""


class PodFacts:
    """Addresses and node of a pod that the downward API exposes besides the pod object."""

    def __init__(self, pod: V1Pod, pod_ip: str, host_ip: str, allocatable: Mapping[str, int]) -> None:
        self.pod = pod
        self.pod_ip = pod_ip
        self.host_ip = host_ip
        self.allocatable = allocatable


def build_environment(
    facts: PodFacts, container: V1Container, extra: Mapping[str, str], objects: ConfigObjects = NO_OBJECTS
) -> dict[str, str]:
    """Return the environment variables of a container on top of `extra` and of `envFrom`; each can reference the
    variables before it.

    Raises ContainerConfigError for an unsupported source or a field unknown to the downward API, MissingObjectError
    for a missing key that a user can still create.
    """
    environment = {**extra, **objects.variables(container)}
    for variable in container.env or ():
        if variable.value_from is None:
            environment[variable.name] = expand(variable.value or "", environment)
            continue
        source = variable.value_from
        keyed = ((CONFIG_MAP, source.config_map_key_ref), (SECRET, source.secret_key_ref))
        reference = next(((plural, candidate) for plural, candidate in keyed if candidate is not None), None)
        if reference is not None:
            value = objects.value(*reference)
            if value is not None:
                environment[variable.name] = value
            continue
        try:
            environment[variable.name] = _from_source(facts, container, variable.value_from)
        except ValueError as error:
            raise ContainerConfigError(f"container {container.name}: env {variable.name}: {error}") from error
    return environment


def command_line(container: V1Container, environment: Mapping[str, str]) -> list[str]:
    """Return the container's command and args with $(NAME) replaced. Raise ContainerConfigError if there is no
    command.

    Images are never pulled, so their entry point is unknown.
    """
    if not container.command:
        raise ContainerConfigError(
            f"container {container.name} has no command; the node agent runs commands as local processes "
            f"and does not know the entry point of image {quoted(container.image)}"
        )
    return [expand(word, environment) for word in (*container.command, *(container.args or ()))]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) in `text` by the variable's value and $$ by a dollar; unknown names stay. Source: core/v1
    Container."""

    def replace(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        return environment.get(match["name"], match[0])

    return _REFERENCE.sub(replace, text)


def _from_source(facts: PodFacts, container: V1Container, source: V1EnvVarSource) -> str:
    if source.field_ref is not None:
        return _field(facts, source.field_ref.field_path)
    if source.resource_field_ref is not None:
        return _resource(facts, container, source.resource_field_ref)
    raise ValueError("local processes do not support this source of a value")


def _field(facts: PodFacts, path: str) -> str:
    pod = facts.pod
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        notes = pod.metadata.labels if keyed["field"] == "labels" else pod.metadata.annotations
        return (notes or {}).get(keyed["key"], "")
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path not in fields:
        raise ValueError(f"fieldPath {quoted(path)} is unknown to the downward API")
    return fields[path]


def _resource(facts: PodFacts, own: V1Container, ref: V1ResourceFieldRef) -> str:
    container = own
    if ref.container_name:
        named = [*facts.pod.spec.containers, *(facts.pod.spec.init_containers or ())]
        container = next((c for c in named if c.name == ref.container_name), None)  # type: ignore[assignment]
        if container is None:
            raise ValueError(f"unknown container {quoted(ref.container_name)}")
    kind, _, resource = ref.resource.partition(".")
    stated = container.resources
    amounts: dict[str, str | int | float]
    if kind == "limits":
        amounts = (stated.limits if stated else None) or {}
    elif kind == "requests":
        amounts = (stated.requests if stated else None) or {}
    else:
        raise ValueError(f"resource {quoted(ref.resource)} is neither limits.NAME nor requests.NAME")
    try:
        if resource in amounts:
            value = parse_quantity(amounts[resource], 1000)
        elif kind == "limits":
            # A container without a limit can use the whole node.
            value = facts.allocatable.get(resource, 0) * (1 if resource == "cpu" else 1000)
        else:
            value = 0
        divisor = parse_quantity(ref.divisor or "1", 1000) or 1000
    except QuantityError as error:
        raise ValueError(str(error)) from error
    return str(-(-value // divisor))


def hostname(pod: V1Pod) -> str:
    """Return the host name of the pod: spec.hostname, else the pod's name, shortened to a valid host name."""
    return (pod.spec.hostname or pod.metadata.name)[:63].rstrip("-.")


def inherited(environ: Mapping[str, str], names: Sequence[str] = INHERITED) -> dict[str, str]:
    return {name: environ[name] for name in names if name in environ}
