"""ConfigMaps and Secrets of a container, as environment variables and as files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from phalanx_local.nodeagent.core_v1 import V1Container, V1KeyRef, V1KeyToPath, V1Pod, V1Volume

CONFIG_MAP, SECRET = "configmaps", "secrets"

Content = Mapping[str, bytes]
#: Function (plural, namespace, name) that returns the object as JSON, None if it does not exist.
Read = Callable[[str, str, str], Awaitable[bytes | None]]


class MissingObjectError(Exception):
    """Missing ConfigMap or Secret, or a missing key: the container waits until a user creates it."""


class _Object(msgspec.Struct, rename="camel"):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class ConfigObjects:
    """ConfigMaps and Secrets that one container and its pod reference. Absent optional objects are empty."""

    def __init__(self, contents: Mapping[tuple[str, str], Content]) -> None:
        self._contents = contents

    @classmethod
    async def read(cls, read: Read, pod: V1Pod, container: V1Container) -> ConfigObjects:
        """Read all ConfigMaps and Secrets that a container references. Raise MissingObjectError, and the errors of
        `read`."""
        contents: dict[tuple[str, str], Content] = {}
        for plural, name, optional in sorted(set(_references(pod, container))):
            raw = await read(plural, pod.metadata.namespace, name)
            if raw is not None:
                contents[plural, name] = _content(raw, plural)
            elif not optional:
                raise MissingObjectError(f'{plural[:-1]} "{name}" not found')
            else:
                contents.setdefault((plural, name), {})
        return cls(contents)

    def value(self, plural: str, reference: V1KeyRef) -> str | None:
        """Return the value of a ConfigMap's or Secret's key; None for an absent optional key. Raise
        MissingObjectError for other absent keys."""
        content = self._contents.get((plural, reference.name), {})
        if reference.key in content:
            return content[reference.key].decode("utf-8", "replace")
        if reference.optional:
            return None
        raise MissingObjectError(f"couldn't find key {reference.key} in {plural[:-1]} {reference.name}")

    def check(self, container: V1Container) -> None:
        """Raise MissingObjectError if an environment variable of the container references an absent key."""
        for variable in container.env or ():
            if variable.value_from is not None:
                for plural, reference in (
                    (CONFIG_MAP, variable.value_from.config_map_key_ref),
                    (SECRET, variable.value_from.secret_key_ref),
                ):
                    if reference is not None:
                        self.value(plural, reference)

    def variables(self, container: V1Container) -> dict[str, str]:
        """Return the environment variables of a container's `envFrom`."""
        variables: dict[str, str] = {}
        for source in container.env_from or ():
            for plural, reference in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
                if reference is not None:
                    for key, value in self._contents.get((plural, reference.name), {}).items():
                        variables[source.prefix + key] = value.decode("utf-8", "replace")
        return variables

    def write(self, volume: V1Volume, place: Path) -> None:
        """Write the files of a ConfigMap or Secret volume into `place`; the process reads them there instead of in
        a mount."""
        if volume.config_map is not None:
            source, items = (CONFIG_MAP, volume.config_map.name), volume.config_map.items
        elif volume.secret is not None:
            source, items = (SECRET, volume.secret.secret_name), volume.secret.items
        else:
            return
        content = self._contents.get(source, {})
        chosen = [V1KeyToPath(key, key) for key in content] if items is None else items
        for item in chosen:
            path = PurePosixPath(item.path)
            if item.key in content and not path.is_absolute() and ".." not in path.parts:
                file = place / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content[item.key])
                file.chmod(0o600)


NO_OBJECTS = ConfigObjects({})


def _references(pod: V1Pod, container: V1Container) -> Iterator[tuple[str, str, bool]]:
    """Yield (plural, name, optional) of each ConfigMap or Secret that a container references."""
    for volume in pod.spec.volumes or ():
        if volume.config_map is not None:
            yield CONFIG_MAP, volume.config_map.name, bool(volume.config_map.optional)
        if volume.secret is not None:
            yield SECRET, volume.secret.secret_name, bool(volume.secret.optional)
    sources = [variable.value_from for variable in container.env or () if variable.value_from is not None]
    keyed = [(CONFIG_MAP, source.config_map_key_ref) for source in sources]
    keyed += [(SECRET, source.secret_key_ref) for source in sources]
    keyed += [(CONFIG_MAP, source.config_map_ref) for source in container.env_from or ()]
    keyed += [(SECRET, source.secret_ref) for source in container.env_from or ()]
    for plural, reference in keyed:
        if reference is not None:
            yield plural, reference.name, bool(reference.optional)


def _content(raw: bytes, plural: str) -> Content:
    """Decode the data of a ConfigMap or Secret. Raise MissingObjectError if it cannot be decoded."""
    try:
        obj = msgspec.json.decode(raw, type=_Object)
        if plural == SECRET:
            return {key: base64.b64decode(value) for key, value in obj.data.items()}
        binary = {key: base64.b64decode(value) for key, value in obj.binary_data.items()}
        return {**{key: value.encode() for key, value in obj.data.items()}, **binary}
    except (msgspec.DecodeError, binascii.Error) as error:
        raise MissingObjectError(f"a {plural[:-1]} cannot be read: {error}") from error
