"""kubeconfig files: merged as kubectl merges them, and decoded entry by entry.

Only the entries of the chosen context are validated: an invalid user of another cluster has no effect.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.kube.auth.credentials import ClientCertificate, Credentials, StaticCredentials, TokenFileCredentials
from phalanx.kube.auth.exec_plugin import API_VERSIONS, INTERACTIVE_MODES, ExecCredentials, ExecPlugin, cluster_info
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.causes import cause_text
from phalanx.kube.errors import ConfigError
from phalanx.model.text.decoding import quoted

__all__ = ["Kubeconfig"]

EXEC_CONFIG_EXTENSION = "client.authentication.k8s.io/exec"


class ClusterEntry(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[dict[str, Any]] | None = None


class ContextEntry(msgspec.Struct):
    cluster: str = ""
    user: str | None = None
    namespace: str | None = None


class _NameValue(msgspec.Struct):
    name: str
    value: str = ""


class ExecEntry(msgspec.Struct, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[_NameValue] | None = None
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool | None = None


class UserEntry(msgspec.Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: ExecEntry | None = None
    auth_provider: dict[str, Any] | None = None
    act_as: str | None = msgspec.field(default=None, name="as")
    act_as_uid: str | None = msgspec.field(default=None, name="as-uid")
    act_as_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    act_as_user_extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")


E = TypeVar("E")


@dataclass(frozen=True)
class NamedEntry(Generic[E]):
    """One entry of a kubeconfig (context, cluster or user) with its name and its file."""

    kind: str
    name: str
    file: str
    entry: E

    @property
    def origin(self) -> str:
        return f"kubeconfig {self.file}: {self.kind} {quoted(self.name)}"

    def path(self, text: str) -> str:
        """Resolve a path in this kubeconfig entry against the directory of its file, not the working directory."""
        return text if os.path.isabs(text) else os.path.join(os.path.dirname(os.path.abspath(self.file)), text)


@dataclass
class Kubeconfig:
    """Kubeconfig merged from files. Of two entries with one name the first file's is used whole; so is
    current-context."""

    files: list[str] = field(default_factory=list)
    current_context: str = ""
    _entries: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, paths: list[str]) -> Kubeconfig:
        merged = cls()
        for path in paths:
            merged._add(path, _read(path))
        return merged

    @classmethod
    def of_document(cls, document: dict[str, Any], name: str) -> Kubeconfig:
        """Create a kubeconfig from a document that is not a file; `name` stands for the file in messages."""
        config = cls()
        config._add(name, document)
        return config

    def _add(self, path: str, document: dict[str, Any]) -> None:
        self.files.append(path)
        current = document.get("current-context")
        if current is not None and not isinstance(current, str):
            raise ConfigError(f"kubeconfig {path}: current-context: expected text, got {quoted(current)}")
        self.current_context = self.current_context or current or ""
        for kind in ("cluster", "context", "user"):
            section = document.get(f"{kind}s") or []
            if not isinstance(section, list):
                raise ConfigError(f"kubeconfig {path}: {kind}s: expected a list, got {type(section).__name__}")
            for index, item in enumerate(section):
                name = item.get("name") if isinstance(item, dict) else None
                if not isinstance(name, str):
                    raise ConfigError(f"kubeconfig {path}: {kind}s[{index}]: no name")
                self._entries.setdefault((kind, name), (path, item.get(kind) or {}))

    @property
    def _origin(self) -> str:
        return f"kubeconfig {os.pathsep.join(self.files)}"

    def context(self, name: str | None, cluster: str = "", user: str = "") -> NamedEntry[ContextEntry]:
        """Return the context `name` (None: the current one), with `cluster` or `user` in place of the context's
        own."""
        name = name or self.current_context
        if not name and cluster:
            return NamedEntry("context", "", self.files[0], ContextEntry(cluster, user or None))
        if not name:
            raise ConfigError(f"{self._origin}: no current-context; name one of {self._names('context')}")
        selected = self._entry("context", name, ContextEntry, self._origin)
        entry = selected.entry
        changed = ContextEntry(cluster or entry.cluster, user or entry.user, entry.namespace)
        return dataclasses.replace(selected, entry=changed)

    def cluster(self, context: NamedEntry[ContextEntry]) -> NamedEntry[ClusterEntry]:
        if not context.entry.cluster:
            raise ConfigError(f"{context.origin}: no cluster")
        return self._entry("cluster", context.entry.cluster, ClusterEntry, context.origin)

    def user(self, context: NamedEntry[ContextEntry]) -> NamedEntry[UserEntry]:
        if not context.entry.user:
            return NamedEntry("user", "", context.file, UserEntry())
        return self._entry("user", context.entry.user, UserEntry, context.origin)

    def _entry(self, kind: str, name: str, shape: type[E], asked_by: str) -> NamedEntry[E]:
        if (kind, name) not in self._entries:
            raise ConfigError(f"{asked_by}: there is no {kind} {quoted(name)}, only {self._names(kind)}")
        file, raw = self._entries[kind, name]
        try:
            return NamedEntry(kind, name, file, msgspec.convert(raw, shape))
        except msgspec.ValidationError as error:
            raise ConfigError(f"kubeconfig {file}: {kind} {quoted(name)}: {error}") from error

    def _names(self, kind: str) -> str:
        return ", ".join(sorted(quoted(name) for known, name in self._entries if known == kind)) or "none"

    def tls(self, cluster: NamedEntry[ClusterEntry], user: NamedEntry[UserEntry]) -> TlsSettings:
        """Return the TLS settings of a kubeconfig's cluster and user, by the rules of kubectl.

        Data has priority over files. A CA together with the insecure switch raises ConfigError.
        """
        cluster_entry, user_entry = cluster.entry, user.entry
        authority = _decoded(cluster_entry.certificate_authority_data, cluster.origin, "certificate-authority-data")
        insecure = bool(cluster_entry.insecure_skip_tls_verify)
        if insecure and (authority or cluster_entry.certificate_authority):
            raise ConfigError(
                f"{cluster.origin}: a certificate authority and insecure-skip-tls-verify exclude each other"
            )
        certificate = _decoded(user_entry.client_certificate_data, user.origin, "client-certificate-data")
        key = _decoded(user_entry.client_key_data, user.origin, "client-key-data")
        has_certificate = bool(certificate or user_entry.client_certificate)
        if has_certificate != bool(key or user_entry.client_key):
            missing = "client-key" if has_certificate else "client-certificate"
            raise ConfigError(f"{user.origin}: no {missing} or {missing}-data beside its counterpart")
        inline = None
        if certificate or key:
            # One half can be inline and the other a file; ssl needs both in one form, so both become inline.
            inline = ClientCertificate(
                certificate or _file(user, user_entry.client_certificate, "client-certificate"),
                key or _file(user, user_entry.client_key, "client-key"),
            )
        return TlsSettings(
            authority=authority,
            authority_file=cluster.path(cluster_entry.certificate_authority)
            if cluster_entry.certificate_authority
            else None,
            certificate=inline,
            certificate_file=user.path(user_entry.client_certificate) if user_entry.client_certificate else None,
            key_file=user.path(user_entry.client_key) if user_entry.client_key else None,
            server_name=cluster_entry.tls_server_name or None,
            insecure=insecure,
            origin=f"{cluster.origin}, user {quoted(user.name)}",
        )

    def credentials(
        self, cluster: NamedEntry[ClusterEntry], user: NamedEntry[UserEntry], server: str
    ) -> Callable[[], Credentials]:
        """Return a function that creates the credentials of a user: token, tokenFile, basic auth, or else an exec
        plugin.

        A token beside an exec plugin has priority, as in kubectl.
        """
        entry = user.entry
        if entry.auth_provider is not None:
            name = entry.auth_provider.get("name")
            raise ConfigError(
                f"{user.origin}: auth-provider {quoted(name)} is not supported; use an exec "
                "plugin of the same provider"
            )
        methods = [
            word
            for word, given in (
                ("token", entry.token or entry.token_file),
                ("username and password", entry.username or entry.password),
            )
            if given
        ]
        if len(methods) > 1:
            raise ConfigError(f"{user.origin}: more than one way to authenticate: {', '.join(methods)}")
        if entry.token_file:
            path = user.path(entry.token_file)
            return functools.partial(TokenFileCredentials, path, fallback=entry.token, origin=user.origin)
        if entry.token:
            static = StaticCredentials.token(entry.token, user.origin)
        elif entry.username or entry.password:
            static = StaticCredentials.basic(entry.username or "", entry.password or "")
        elif entry.exec is not None:
            return functools.partial(ExecCredentials, self._plugin(entry.exec, cluster, user, server))
        else:
            static = StaticCredentials()
        return lambda: static

    def _plugin(
        self, entry: ExecEntry, cluster: NamedEntry[ClusterEntry], user: NamedEntry[UserEntry], server: str
    ) -> ExecPlugin:
        origin = user.origin
        if not entry.command:
            raise ConfigError(f"{origin}: exec: no command")
        if entry.api_version not in API_VERSIONS:
            raise ConfigError(
                f"{origin}: exec: apiVersion {quoted(entry.api_version)} is not one of {', '.join(API_VERSIONS)}"
            )
        if entry.interactive_mode is None and entry.api_version == API_VERSIONS[0]:
            raise ConfigError(f"{origin}: exec: interactiveMode has to be given with {entry.api_version}")
        mode = entry.interactive_mode or "IfAvailable"
        if mode not in INTERACTIVE_MODES:
            raise ConfigError(
                f"{origin}: exec: interactiveMode {quoted(mode)} is not one of {', '.join(INTERACTIVE_MODES)}"
            )
        info = None
        if entry.provide_cluster_info:
            info = self._cluster_info(cluster, server)
        # A word without a slash is searched in PATH; a path is relative to the kubeconfig.
        command = user.path(entry.command) if os.path.dirname(entry.command) else entry.command
        return ExecPlugin(
            command=command,
            api_version=entry.api_version,
            origin=origin,
            args=tuple(entry.args or ()),
            env=tuple((pair.name, pair.value) for pair in entry.env or ()),
            install_hint=(entry.install_hint or "").strip(),
            interactive_mode=mode,
            cluster_info=info,
        )

    def _cluster_info(self, cluster: NamedEntry[ClusterEntry], server: str) -> dict[str, Any]:
        entry = cluster.entry
        authority = _decoded(entry.certificate_authority_data, cluster.origin, "certificate-authority-data")
        if authority is None and entry.certificate_authority:
            authority = _file(cluster, entry.certificate_authority, "certificate-authority")
        extension = next(
            (item.get("extension") for item in entry.extensions or () if item.get("name") == EXEC_CONFIG_EXTENSION),
            None,
        )
        return cluster_info(
            server,
            tls_server_name=entry.tls_server_name or "",
            insecure=bool(entry.insecure_skip_tls_verify),
            certificate_authority=authority,
            proxy_url=entry.proxy_url or "",
            config=extension,
        )

    def impersonation(self, user: NamedEntry[UserEntry]) -> tuple[tuple[str, str], ...]:
        """Return the Impersonate-* headers for the kubeconfig user's ``as`` and related fields. Raises
        ConfigError."""
        entry = user.entry
        headers = []
        if entry.act_as:
            headers.append(("Impersonate-User", entry.act_as))
        if entry.act_as_uid:
            headers.append(("Impersonate-Uid", entry.act_as_uid))
        headers += [("Impersonate-Group", group) for group in entry.act_as_groups or ()]
        for key, values in sorted((entry.act_as_user_extra or {}).items()):
            headers += [(f"Impersonate-Extra-{_header_key(key)}", value) for value in values]
        if headers and not entry.act_as:
            raise ConfigError(f"{user.origin}: as-uid, as-groups or as-user-extra without as")
        for name, value in headers:
            if not value.isascii() or not value.isprintable():
                raise ConfigError(f"{user.origin}: {name}: {quoted(value)} cannot be in a header")
        return tuple(headers)


def _header_key(key: str) -> str:
    plain = "!#$&'*+-.^_`|~"
    return "".join(
        c if c.isascii() and (c.isalnum() or c in plain) else "".join(f"%{b:02X}" for b in c.encode()) for c in key
    )


def _read(path: str) -> dict[str, Any]:
    import yaml  # its import costs 45 ms, and an in-cluster daemon does not use it

    from phalanx.model.text.yaml_text import decode_yaml

    try:
        with open(path, encoding="utf-8") as file:
            document = decode_yaml(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {path}: {cause_text(error)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path}: not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: expected a mapping, got {type(document).__name__}")
    return document


def _decoded(text: str | None, origin: str, name: str) -> bytes | None:
    if not text:
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{origin}: {name}: not base64: {error}") from error


def _file(named: NamedEntry[Any], path: str | None, name: str) -> bytes:
    resolved = named.path(path or "")
    try:
        with open(resolved, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{named.origin}: {name}: {cause_text(error)}") from error
