"""Choice of a cluster and a user for API requests: from a kubeconfig, or from the pod that this process runs in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from phalanx.kube.auth.credentials import Credentials, StaticCredentials, TokenFileCredentials
from phalanx.kube.auth.kubeconfig import ClusterEntry, Kubeconfig
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.errors import ConfigError
from phalanx.kube.http.proxy import environment_proxy
from phalanx.model.text.decoding import quoted

__all__ = ["ClusterConfig", "Overrides", "config_of", "load_config"]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Extension of a cluster in a kubeconfig: `url` of the page's server that commands ask before they plan themselves.
#: `phalanx up` writes it.
SERVER_EXTENSION = "phalanx.dev/server"


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of an API client: an immutable value that threads and event loops can share.

    ``server`` is an http(s) URL without a trailing slash; it can have a path (a server behind a gateway).
    ``credentials`` creates a new source of identities; every client creates its own.
    """

    server: str
    namespace: str = "default"
    tls: TlsSettings = field(default_factory=TlsSettings)
    credentials: Callable[[], Credentials] = field(default=StaticCredentials, repr=False)
    proxy_url: str | None = None
    #: Extra request headers (impersonation), in order.
    headers: tuple[tuple[str, str], ...] = ()
    context: str = ""
    #: Largest size in bytes of one response, and of one line of a watch, of an untrusted server; 0 for no limit.
    answer_limit: int = 0
    #: Origin of the settings, for messages: file and context, or "in-cluster".
    source: str = ""
    #: URL of the page's server that the kubeconfig names for this cluster; "" for none.
    page_url: str = ""


@dataclass(frozen=True)
class Overrides:
    """Options that replace kubeconfig entries: cluster, user, and the user to impersonate (kubectl's `--as`)."""

    cluster: str = ""
    user: str = ""
    act_as: str = ""
    act_as_groups: tuple[str, ...] = ()

    def headers(self, own: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the Impersonate-* headers that replace `own`, the kubeconfig's.

        A given user replaces all of them; groups alone replace only the groups. Raises ConfigError.
        """
        if not self.act_as and not self.act_as_groups:
            return own
        if not self.act_as and not any(name == "Impersonate-User" for name, _ in own):
            raise ConfigError("--as-group needs --as: groups cannot be impersonated without a user")
        base = () if self.act_as else tuple(pair for pair in own if pair[0] != "Impersonate-Group")
        added = [("Impersonate-User", self.act_as)] if self.act_as else []
        added += [("Impersonate-Group", group) for group in self.act_as_groups]
        for name, value in added:
            if not value.isascii() or not value.isprintable():
                raise ConfigError(f"{name}: {quoted(value)} cannot be in a header")
        return (*base, *added)


NO_OVERRIDES = Overrides()


def load_config(
    kubeconfig: str | None = None,
    context: str | None = None,
    overrides: Overrides = NO_OVERRIDES,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: str = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """Load the client settings as kubectl does: explicit file, $KUBECONFIG (a merged list), ~/.kube/config,
    in-cluster.

    The in-cluster configuration is used only when no kubeconfig file exists or the files name no context at
    all. ConfigError names the faulty file and entry; unused entries are not validated.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig is not None:
        if not os.path.exists(kubeconfig):
            raise ConfigError(f"kubeconfig {kubeconfig}: no such file")
        paths = [kubeconfig]
    else:
        paths = kubeconfig_paths(environ)
    loaded = Kubeconfig.load([path for path in paths if os.path.exists(path)])
    chosen = context or overrides.cluster or overrides.user
    if kubeconfig is None and not chosen and not loaded.current_context:
        inside = _in_cluster(environ, service_account)
        if inside is not None:
            return replace(inside, headers=overrides.headers(inside.headers))
    if not loaded.files:
        raise ConfigError(f"no kubeconfig: {', '.join(paths)} does not exist, and this is not a pod in a cluster")
    return config_of(loaded, context, environ, overrides)


def kubeconfig_paths(environ: Mapping[str, str]) -> list[str]:
    """Return the paths of the kubeconfig files without an explicit one: $KUBECONFIG, else ~/.kube/config."""
    if environ.get("KUBECONFIG"):
        return list(dict.fromkeys(path for path in environ["KUBECONFIG"].split(os.pathsep) if path))
    home = environ.get("HOME") or os.path.expanduser("~")
    return [os.path.join(home, ".kube", "config")]


def config_of(
    loaded: Kubeconfig, context: str | None, environ: Mapping[str, str], overrides: Overrides
) -> ClusterConfig:
    """Return the client settings for a kubeconfig context (None: the current one). `environ` can name proxies.
    Raises ConfigError."""
    chosen = loaded.context(context, overrides.cluster, overrides.user)
    cluster = loaded.cluster(chosen)
    user = loaded.user(chosen)
    tls = loaded.tls(cluster, user)
    server = _server_url(cluster.entry.server, tls.configured, cluster.origin)
    proxy = cluster.entry.proxy_url or environment_proxy(server, environ)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigError(f"{cluster.origin}: proxy-url {quoted(proxy)}: only http and https proxies are supported")
    return ClusterConfig(
        server=server,
        namespace=chosen.entry.namespace or "default",
        tls=tls,
        credentials=loaded.credentials(cluster, user, server),
        proxy_url=proxy or None,
        headers=overrides.headers(loaded.impersonation(user)),
        context=chosen.name,
        source=chosen.origin,
        page_url=_page_url(cluster.entry),
    )


def with_extension(config: dict[str, Any], name: str, content: dict[str, str]) -> dict[str, Any]:
    """Return a kubeconfig document whose clusters have the extension `name`, beside their other ones."""

    def extended(cluster: dict[str, Any]) -> dict[str, Any]:
        others = [entry for entry in cluster.get("extensions") or () if entry.get("name") != name]
        return {**cluster, "extensions": [*others, {"name": name, "extension": content}]}

    clusters = [{**named, "cluster": extended(named["cluster"])} for named in config["clusters"]]
    return {**config, "clusters": clusters}


def _page_url(cluster: ClusterEntry) -> str:
    for extension in cluster.extensions or ():
        content = extension.get("extension")
        if extension.get("name") == SERVER_EXTENSION and isinstance(content, dict):
            return str(content.get("url") or "")
    return ""


def _server_url(server: str, tls: bool, origin: str) -> str:
    if not server:
        raise ConfigError(f"{origin}: no server")
    # kubectl also accepts host:port; then the presence of TLS settings decides about the scheme.
    url = server if "://" in server else f"{'https' if tls else 'http'}://{server}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{origin}: server {quoted(server)}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{origin}: server {quoted(server)} is not an http or https URL of a server")
    if parts.username or parts.password:
        raise ConfigError(f"{origin}: server: a name or password belongs into the user entry, not into the URL")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{origin}: server {quoted(server)} has characters that cannot be in a URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def _in_cluster(environ: Mapping[str, str], directory: str) -> ClusterConfig | None:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token, authority = os.path.join(directory, "token"), os.path.join(directory, "ca.crt")
    if not host or not port or not os.path.exists(token):
        return None
    try:
        namespace = Path(directory, "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return ClusterConfig(
        server=server,
        namespace=namespace or "default",
        tls=TlsSettings(
            authority_file=authority if os.path.exists(authority) else None, origin=f"in-cluster: {authority}"
        ),
        credentials=lambda: TokenFileCredentials(token, origin="in-cluster"),
        proxy_url=environment_proxy(server, environ),
        source="in-cluster",
    )
