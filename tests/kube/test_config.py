"""A kubeconfig has the meaning that kubectl gives it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.auth.config import ClusterConfig, Overrides, load_config
from phalanx.kube.auth.credentials import ClientIdentity, TokenFileCredentials
from phalanx.kube.auth.exec_plugin import ExecCredentials
from phalanx.kube.errors import ConfigError

V1 = "client.authentication.k8s.io/v1"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(
    path: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    current: str | None = "main",
    **more: Any,
) -> str:
    """A kubeconfig with one cluster, user and context, all called main."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "main", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
        "users": [{"name": "main", "user": user or {}}],
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main", **(context or {})}}],
        **({"current-context": current} if current else {}),
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return str(path)


def load(path: str | None = None, context: str | None = None, **environ: str) -> ClusterConfig:
    return load_config(path, context, environ={"HOME": "/nowhere", **environ}, service_account="/nowhere")


def identity(config: ClusterConfig) -> ClientIdentity | None:
    return config.credentials().cached()


class TestFinding:
    def test_the_explicit_file_wins(self, tmp_path: Path) -> None:
        chosen = write(tmp_path / "chosen", cluster={"server": "https://chosen"})
        other = write(tmp_path / "other", cluster={"server": "https://other"})
        assert load(chosen, KUBECONFIG=other).server == "https://chosen"

    def test_kubeconfig_variable_precedes_the_home_directory(self, tmp_path: Path) -> None:
        other = write(tmp_path / "other", cluster={"server": "https://other"})
        write(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
        assert load(HOME=str(tmp_path), KUBECONFIG=other).server == "https://other"
        assert load(HOME=str(tmp_path)).server == "https://home"

    def test_service_account_of_the_pod_is_used_without_a_kubeconfig(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("secret\n")
        (tmp_path / "namespace").write_text("batch\n")
        (tmp_path / "ca.crt").write_text("")
        pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nowhere"}
        config = load_config(environ=pod, service_account=str(tmp_path))
        assert (config.server, config.namespace, config.source) == ("https://[fd00::1]:443", "batch", "in-cluster")
        assert config.tls.authority_file == str(tmp_path / "ca.crt")
        credentials = config.credentials()
        assert isinstance(credentials, TokenFileCredentials)
        assert credentials.path == str(tmp_path / "token")

    def test_nothing_at_all_is_an_error_that_says_where_it_looked(self) -> None:
        with pytest.raises(ConfigError, match=r"/nowhere/\.kube/config does not exist"):
            load()

    def test_an_explicit_file_must_exist(self) -> None:
        with pytest.raises(ConfigError, match="kubeconfig /nowhere/x: no such file"):
            load("/nowhere/x")

    def test_missing_files_of_the_list_are_passed_over(self, tmp_path: Path) -> None:
        there = write(tmp_path / "there")
        assert load(KUBECONFIG=f"/nowhere/a:{there}:/nowhere/b").server == "https://api.example:6443"


class TestMerging:
    def test_entries_of_all_files_are_known_and_the_first_of_a_name_wins_whole(self, tmp_path: Path) -> None:
        first = write(tmp_path / "first", user={"token": "first"}, current=None)
        second = write(
            tmp_path / "second",
            cluster={"server": "https://second", "insecure-skip-tls-verify": True},
            user={"token": "second", "as": "somebody"},
            contexts=[
                {"name": "main", "context": {"cluster": "main", "user": "main", "namespace": "second"}},
                {"name": "extra", "context": {"cluster": "main", "user": "main", "namespace": "extra"}},
            ],
            current="extra",
        )
        config = load(KUBECONFIG=f"{first}:{second}")
        assert config.context == "extra"
        assert config.namespace == "extra"
        assert config.server == "https://api.example:6443"
        assert not config.tls.insecure
        assert identity(config) == ClientIdentity("Bearer first")
        assert config.headers == ()

    def test_a_context_can_be_chosen(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "c",
            contexts=[
                {"name": "main", "context": {"cluster": "main"}},
                {"name": "other", "context": {"cluster": "main", "namespace": "other"}},
            ],
        )
        assert load(path).namespace == "default"
        assert load(path, "other").namespace == "other"

    def test_paths_are_relative_to_their_file(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "deep" / "c",
            cluster={"certificate-authority": "ca.pem"},
            user={"client-certificate": "../client.pem", "client-key": "/keys/client", "tokenFile": "token"},
        )
        config = load(path)
        assert config.tls.authority_file == str(tmp_path / "deep" / "ca.pem")
        assert config.tls.certificate_file == str(tmp_path / "deep" / "../client.pem")
        assert config.tls.key_file == "/keys/client"
        credentials = config.credentials()
        assert isinstance(credentials, TokenFileCredentials)
        assert credentials.path == str(tmp_path / "deep" / "token")


class TestEntries:
    def test_data_wins_over_files(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "c",
            cluster={"certificate-authority": "/nowhere/ca", "certificate-authority-data": b64("AUTHORITY")},
            user={
                "client-certificate": "/nowhere/crt",
                "client-certificate-data": b64("CERT"),
                "client-key-data": b64("KEY"),
            },
        )
        tls = load(path).tls
        assert tls.authority == b"AUTHORITY"
        assert tls.certificate is not None
        assert (tls.certificate.certificate, tls.certificate.key) == (b"CERT", b"KEY")

    def test_a_certificate_may_be_half_inline(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_text("KEY")
        path = write(tmp_path / "c", user={"client-certificate-data": b64("CERT"), "client-key": "key"})
        tls = load(path).tls
        assert tls.certificate is not None
        assert tls.certificate.key == b"KEY"

    def test_name_and_password(self, tmp_path: Path) -> None:
        path = write(tmp_path / "c", user={"username": "jo", "password": "pass:word"})
        assert identity(load(path)) == ClientIdentity(f"Basic {b64('jo:pass:word')}")

    def test_impersonation(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "c",
            user={
                "as": "jo",
                "as-uid": "7",
                "as-groups": ["g1", "g2"],
                "as-user-extra": {"example.com/a b": ["x"]},
            },
        )
        assert load(path).headers == (
            ("Impersonate-User", "jo"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "g1"),
            ("Impersonate-Group", "g2"),
            ("Impersonate-Extra-example.com%2Fa%20b", "x"),
        )

    @pytest.mark.parametrize(
        ("cluster", "url"),
        [
            ({"server": "https://host/"}, "https://host"),
            ({"server": "https://host/k8s/clusters/c-1/"}, "https://host/k8s/clusters/c-1"),
            ({"server": "http://127.0.0.1:8001"}, "http://127.0.0.1:8001"),
            ({"server": "https://[fd00::1]:6443"}, "https://[fd00::1]:6443"),
            ({"server": "host:6443"}, "http://host:6443"),
            ({"server": "host:6443", "insecure-skip-tls-verify": True}, "https://host:6443"),
        ],
    )
    def test_server(self, tmp_path: Path, cluster: dict[str, Any], url: str) -> None:
        assert load(write(tmp_path / "c", cluster=cluster)).server == url

    def test_tls_server_name_and_proxy(self, tmp_path: Path) -> None:
        config = load(
            write(tmp_path / "c", cluster={"tls-server-name": "inner", "proxy-url": "http://proxy:3128"}),
            HTTPS_PROXY="http://ignored",
        )
        assert config.tls.server_name == "inner"
        assert config.proxy_url == "http://proxy:3128"

    def test_exec(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "c",
            cluster={
                "certificate-authority-data": b64("AUTHORITY"),
                "tls-server-name": "inner",
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
            },
            user={
                "exec": {
                    "apiVersion": V1,
                    "command": "bin/login",
                    "args": ["--fast"],
                    "env": [{"name": "A", "value": "1"}],
                    "interactiveMode": "Never",
                    "provideClusterInfo": True,
                    "installHint": " get it at the counter ",
                }
            },
        )
        credentials = load(path).credentials()
        assert isinstance(credentials, ExecCredentials)
        plugin = credentials.plugin
        assert plugin.command == str(tmp_path / "bin/login")
        assert (plugin.args, plugin.env, plugin.interactive_mode) == (("--fast",), (("A", "1"),), "Never")
        assert plugin.install_hint == "get it at the counter"
        assert plugin.cluster_info == {
            "server": "https://api.example:6443",
            "tls-server-name": "inner",
            "certificate-authority-data": b64("AUTHORITY"),
            "config": {"audience": "x"},
        }

    def test_a_token_beside_an_exec_plugin_wins(self, tmp_path: Path) -> None:
        path = write(tmp_path / "c", user={"token": "t", "exec": {"apiVersion": V1, "command": "x"}})
        assert identity(load(path)) == ClientIdentity("Bearer t")

    def test_a_bare_command_is_left_to_the_search_path(self, tmp_path: Path) -> None:
        plugin = {"apiVersion": V1, "command": "login", "interactiveMode": "Never"}
        credentials = load(write(tmp_path / "c", user={"exec": plugin})).credentials()
        assert isinstance(credentials, ExecCredentials)
        assert credentials.plugin.command == "login"


class TestErrors:
    """Each names the file and the entry; entries that are not used are not judged."""

    @pytest.mark.parametrize(
        ("parts", "text"),
        [
            ({"cluster": {"server": ""}}, "cluster 'main': no server"),
            ({"cluster": {"server": 7}}, r"cluster 'main': Expected `str`, got `int` - at `\$.server`"),
            ({"cluster": {"server": "ftp://x"}}, "cluster 'main': server 'ftp://x' is not an http or https URL"),
            ({"cluster": {"server": "https://me:pw@x"}}, "belongs into the user entry"),
            (
                {"cluster": {"server": "https://x:99999"}},
                "cluster 'main': server 'https://x:99999': Port out of range",
            ),
            (
                {"cluster": {"certificate-authority-data": "%"}},
                "cluster 'main': certificate-authority-data: not base64",
            ),
            (
                {"cluster": {"proxy-url": "socks5://x"}},
                "cluster 'main': proxy-url 'socks5://x': only http and https",
            ),
            (
                {"cluster": {"certificate-authority": "x", "insecure-skip-tls-verify": True}},
                "cluster 'main': a certificate authority and insecure-skip-tls-verify exclude each other",
            ),
            ({"user": {"client-certificate": "x"}}, "user 'main': no client-key or client-key-data"),
            (
                {"user": {"client-key-data": b64("x")}},
                "user 'main': no client-certificate or client-certificate-data",
            ),
            (
                {"user": {"token": "t", "username": "u"}},
                "user 'main': more than one way .*: token, username and password",
            ),
            ({"user": {"token": "two\nlines"}}, "user 'main': the token has characters"),
            ({"user": {"auth-provider": {"name": "gcp"}}}, "user 'main': auth-provider 'gcp' is not supported"),
            ({"user": {"as-groups": ["g"]}}, "user 'main': as-uid, as-groups or as-user-extra without as"),
            ({"user": {"exec": {"apiVersion": V1}}}, "user 'main': exec: no command"),
            (
                {"user": {"exec": {"command": "x", "apiVersion": "v0"}}},
                "user 'main': exec: apiVersion 'v0' is not one of",
            ),
            (
                {"user": {"exec": {"command": "x", "apiVersion": V1}}},
                "user 'main': exec: interactiveMode has to be given",
            ),
            (
                {"user": {"exec": {"command": "x", "apiVersion": V1, "interactiveMode": "Maybe"}}},
                "user 'main': exec: interactiveMode 'Maybe' is not one of",
            ),
            ({"context": {"cluster": "lost"}}, "context 'main': there is no cluster 'lost', only 'main'"),
            ({"context": {"user": "lost"}}, "context 'main': there is no user 'lost', only 'main'"),
            ({"current": "lost"}, "there is no context 'lost', only 'main'"),
            ({"current": None}, "no current-context; name one of 'main'"),
            ({"clusters": {"main": {}}}, "clusters: expected a list, got dict"),
            ({"users": [{"user": {}}]}, r"users\[0\]: no name"),
        ],
    )
    def test_names_the_entry(self, tmp_path: Path, parts: dict[str, Any], text: str) -> None:
        path = write(tmp_path / "broken", **parts)
        with pytest.raises(ConfigError, match=text) as caught:
            load(path)
        assert path in str(caught.value)

    @pytest.mark.parametrize("text", ["{", "[]", "\x00"])
    def test_not_a_kubeconfig(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "c").write_text(text)
        with pytest.raises(ConfigError, match=f"kubeconfig {tmp_path / 'c'}: "):
            load(str(tmp_path / "c"))

    def test_broken_entry_of_another_context_is_ignored(self, tmp_path: Path) -> None:
        users = [{"name": "main", "user": {"token": "t"}}, {"name": "broken", "user": {"token": 7, "exec": "?"}}]
        assert identity(load(write(tmp_path / "c", users=users))) == ClientIdentity("Bearer t")

    def test_secrets_do_not_show(self, tmp_path: Path) -> None:
        path = write(tmp_path / "c", user={"token": "SECRET"})
        config = load(path)
        assert "SECRET" not in repr(config) + repr(identity(config)) + repr(config.credentials())


@pytest.mark.parametrize(
    ("environ", "server", "proxy"),
    [
        ({}, "https://api", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://api", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://api", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://api", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://api", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://localhost:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://api", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x, example.com"}, "https://api.example.com", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "https://example.com", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.example.com"}, "https://api.example.com", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://11.1.2.3", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.2.3"}, "https://10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api:6443"}, "https://api:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api:6443"}, "https://api:443", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "[fd00::1]:6443"}, "https://[fd00::1]:6443", None),
    ],
)
def test_proxies_of_the_environment(
    tmp_path: Path, environ: dict[str, str], server: str, proxy: str | None
) -> None:
    assert load(write(tmp_path / "c", cluster={"server": server}), **environ).proxy_url == proxy


class TestOverrides:
    """kubectl's --cluster, --user, --as and --as-group."""

    def several(self, tmp_path: Path, **more: Any) -> str:
        return write(
            tmp_path / "config",
            clusters=[
                {"name": name, "cluster": {"server": f"https://{name}.example"}} for name in ("main", "second")
            ],
            users=[{"name": name, "user": {"token": f"token-of-{name}"}} for name in ("main", "other")],
            **more,
        )

    def test_another_cluster_and_user_take_the_place_of_the_contexts(self, tmp_path: Path) -> None:
        file = self.several(tmp_path)
        found = load_config(file, None, Overrides(cluster="second", user="other"), environ={"HOME": "/nowhere"})
        assert found.server == "https://second.example"
        assert identity(found) == ClientIdentity("Bearer token-of-other")
        alone = load_config(file, None, Overrides(user="other"), environ={"HOME": "/nowhere"})
        assert (alone.server, identity(alone)) == ("https://main.example", identity(found))

    def test_a_cluster_needs_no_context(self, tmp_path: Path) -> None:
        file = self.several(tmp_path, current=None)
        found = load_config(file, None, Overrides(cluster="second", user="main"), environ={"HOME": "/nowhere"})
        assert (found.server, found.namespace) == ("https://second.example", "default")
        with pytest.raises(ConfigError, match="no current-context"):
            load_config(file, None, Overrides(user="main"), environ={"HOME": "/nowhere"})

    @pytest.mark.parametrize(
        ("overrides", "word"), [(Overrides(cluster="x"), "cluster"), (Overrides(user="x"), "user")]
    )
    def test_missing_context_cluster_or_user_is_named(
        self, tmp_path: Path, overrides: Overrides, word: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"there is no {word} 'x', only 'main'"):
            load_config(self.several(tmp_path), None, overrides, environ={"HOME": "/nowhere"})

    def test_impersonation_option_replaces_the_users_own(self, tmp_path: Path) -> None:
        file = write(tmp_path / "config", user={"as": "root", "as-uid": "7", "as-groups": ["wheel"]})

        def headers(**overrides: Any) -> tuple[tuple[str, str], ...]:
            return load_config(file, None, Overrides(**overrides), environ={"HOME": "/nowhere"}).headers

        own = (("Impersonate-User", "root"), ("Impersonate-Uid", "7"), ("Impersonate-Group", "wheel"))
        assert headers() == own
        # An impersonated user has only the groups of the options.
        assert headers(act_as="ada") == (("Impersonate-User", "ada"),)
        assert headers(act_as="ada", act_as_groups=("dev", "ops")) == (
            ("Impersonate-User", "ada"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
        )
        assert headers(act_as_groups=("dev",)) == (*own[:2], ("Impersonate-Group", "dev"))

    def test_impersonated_groups_without_a_user_and_invalid_names_are_refused(self, tmp_path: Path) -> None:
        file = write(tmp_path / "config")
        with pytest.raises(ConfigError, match="--as-group needs --as"):
            load_config(file, None, Overrides(act_as_groups=("dev",)), environ={"HOME": "/nowhere"})
        with pytest.raises(ConfigError, match="cannot be in a header"):
            load_config(file, None, Overrides(act_as="ada\r\nX: y"), environ={"HOME": "/nowhere"})
