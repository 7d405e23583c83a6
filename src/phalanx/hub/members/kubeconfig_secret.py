"""Kubeconfig in a Secret, as in MultiKueue: it must not run code, read files or skip TLS."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from phalanx.kube.auth.config import ClusterConfig, Overrides, config_of
from phalanx.kube.auth.kubeconfig import Kubeconfig
from phalanx.kube.errors import ConfigError
from phalanx.model.text.decoding import quoted
from phalanx.model.text.yaml_text import decode_yaml

KEY = "kubeconfig"
_MOST_BYTES = 256 * 1024
# Fields that a kubeconfig must not have, by section; the message has the field's name and this reason.
_REFUSED: Mapping[str, Mapping[str, str]] = {
    "cluster": {
        "certificate-authority": "a path; write certificate-authority-data",
        "insecure-skip-tls-verify": "the certificate of the server must be verified",
    },
    "user": {
        "exec": "a Secret must not run programs in the hub",
        "auth-provider": "a Secret must not run programs in the hub",
        "tokenFile": "a path; write token",
        "client-certificate": "a path; write client-certificate-data",
        "client-key": "a path; write client-key-data",
        "username": "basic authentication",
        "password": "basic authentication",
    },
}


def cluster_config(secret: Mapping[str, Any], name: str) -> ClusterConfig:
    """Return the client settings for a member cluster from a Secret (an API object; `name` is for messages).

    Raises ConfigError, with entry and field, for a malformed kubeconfig or a forbidden field. Unused entries are
    checked as well, because a change of the context would activate them.
    """
    document = read_document(secret, name)
    for kind, entry, fields in _entries(document):
        for field, reason in _REFUSED[kind].items():
            if fields.get(field):
                raise ConfigError(f"{name}: {kind} {quoted(entry)}: {field} is refused: {reason}")
        server = fields.get("server")
        if kind == "cluster" and (not isinstance(server, str) or not server.startswith("https://")):
            raise ConfigError(
                f"{name}: cluster {quoted(entry)}: server is refused: write the https:// URL of an API server"
            )
    return config_of(Kubeconfig.of_document(document, name), None, {}, Overrides())


def read_document(secret: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Decode the kubeconfig of a Secret without checks. Raises ConfigError."""
    data = secret.get("data")
    encoded = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(encoded, str):
        raise ConfigError(f"{name}: no key {KEY}")
    if len(encoded) > _MOST_BYTES:
        raise ConfigError(f"{name}: {KEY} is larger than {_MOST_BYTES} bytes")
    try:
        document = decode_yaml(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{name}: {KEY} is not base64 of a text") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {KEY} is not YAML") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: {KEY} is not a kubeconfig")
    return document


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield kind, name and fields of each kubeconfig entry; malformed ones are reported by the parser of the
    kubeconfig."""
    for kind in _REFUSED:
        section = document.get(f"{kind}s")
        for item in section if isinstance(section, list) else ():
            if isinstance(item, dict) and isinstance(fields := item.get(kind), dict):
                yield kind, str(item.get("name")), fields
