"""A Secret must not run code in the hub, read its files or leave out TLS: refused by the name of the field."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from phalanx.hub.members.kubeconfig_secret import cluster_config
from phalanx.kube.errors import ConfigError

Json = dict[str, Any]


def kubeconfig(cluster: Json | None = None, user: Json | None = None) -> Json:
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "west", "user": "hub"}}],
        "clusters": [{"name": "west", "cluster": {"server": "https://west.example:6443", **(cluster or {})}}],
        "users": [{"name": "hub", "user": {"token": "secret", **(user or {})}}],
    }


def secret(document: object) -> Json:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return {"data": {"kubeconfig": base64.b64encode(text).decode()}}


def test_a_server_and_a_token_are_all_that_is_needed() -> None:
    config = cluster_config(secret(kubeconfig()), "Secret hub/west")
    assert config.server == "https://west.example:6443"
    assert config.proxy_url is None  # nothing of the hub's own environment


@pytest.mark.parametrize(
    ("field", "cluster", "user"),
    [
        ("exec", {}, {"exec": {"command": "rm", "apiVersion": "client.authentication.k8s.io/v1"}}),
        ("auth-provider", {}, {"auth-provider": {"name": "gcp"}}),
        ("tokenFile", {}, {"tokenFile": "/var/run/secrets/token"}),
        ("client-certificate", {}, {"client-certificate": "/etc/passwd"}),
        ("client-key", {}, {"client-key": "/etc/passwd"}),
        ("username", {}, {"username": "admin", "password": "admin"}),
        ("certificate-authority", {"certificate-authority": "/etc/passwd"}, {}),
        ("insecure-skip-tls-verify", {"insecure-skip-tls-verify": True}, {}),
        ("server", {"server": "http://west.example"}, {}),
        ("server", {"server": ""}, {}),
        ("server", {"server": ["https://west.example"]}, {}),
    ],
)
def test_refused_field_is_named(field: str, cluster: Json, user: Json) -> None:
    with pytest.raises(ConfigError, match=f"Secret hub/west: .*{field}.* is refused"):
        cluster_config(secret(kubeconfig(cluster, user)), "Secret hub/west")


def test_entries_that_are_not_used_are_judged_as_well() -> None:
    document = kubeconfig()
    document["users"].append({"name": "other", "user": {"exec": {"command": "rm"}}})
    with pytest.raises(ConfigError, match="user 'other': exec is refused"):
        cluster_config(secret(document), "Secret hub/west")


@pytest.mark.parametrize(
    "malformed",
    [
        {},
        {"data": None},
        {"data": {"kubeconfig": "*"}},
        {"data": {"kubeconfig": 5}},
        {"data": {"kubeconfig": "A" * 400_000}},
        secret(b"\xff\xfe"),
        secret(b"{"),
        secret(b"a: &a [*a]"),
        secret([]),
        secret(None),
        secret({"clusters": "x", "users": 3, "contexts": {}}),
        secret({"clusters": [1, {"name": 2}], "users": [{"user": []}]}),
        secret({**kubeconfig(), "current-context": "none"}),
        secret(kubeconfig({"server": "https://a b"})),
        secret(kubeconfig({"certificate-authority-data": "*"})),
        secret(kubeconfig({}, {"token": "two\nlines"})),
        secret(kubeconfig({}, {"client-certificate-data": "QQ=="})),
    ],
)
def test_any_content_of_a_secret_is_a_mistake_of_that_secret_only(malformed: Json) -> None:
    with pytest.raises(ConfigError, match="Secret hub/west"):
        cluster_config(malformed, "Secret hub/west")
