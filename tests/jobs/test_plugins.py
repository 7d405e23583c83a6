"""svc, env and ssh: exactly the objects, files and variables that Volcano's plugins make."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from phalanx.jobs.plugins.plugin import DesiredObject, JobPluginError, SshKey
from phalanx.jobs.plugins.registry import desired_objects, plugin_resources, plugins_of
from phalanx.jobs.plugins.ssh import generate_rsa_key
from phalanx.jobs.spec import Job
from tests.jobs.written import KEY, OWNER, Json, container, env, job, manifests, pod, task

METADATA = {"namespace": "team", "ownerReferences": [OWNER]}
MEMBERS = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "team"}
WITH_INIT = {"initContainers": [{"name": "first"}], "containers": [{"name": "a"}, {"name": "b"}]}


def wanted(kind: str, **spec: Any) -> DesiredObject:
    (found,) = [each for each in desired_objects(job(**spec), lambda: KEY) if each.kind == kind]
    return found


# Which plugins


def test_plugins_run_in_a_fixed_order() -> None:
    every = ("svc", "env", "ssh", "tensorflow", "pytorch", "mpi", "ray", "hcclrank")
    made = job(task("master"), plugins={name: [] for name in reversed(every)})
    assert tuple(plugin.name for plugin in plugins_of(made)) == every


@pytest.mark.parametrize(
    ("asked", "run"),
    [
        ("tensorflow", ["svc", "tensorflow"]),
        ("pytorch", ["svc", "pytorch"]),
        ("mpi", ["svc", "ssh", "mpi"]),
        ("ray", ["svc", "ray"]),
        ("hcclrank", ["hcclrank"]),
        ("env", ["env"]),
    ],
)
def test_plugin_adds_the_plugins_that_it_needs(asked: str, run: list[str]) -> None:
    assert [plugin.name for plugin in plugins_of(job(plugins={asked: []}))] == run


def test_a_plugin_that_is_needed_keeps_its_own_arguments() -> None:
    made = job(plugins={"mpi": [], "svc": ["--disable-network-policy"]})
    assert "NetworkPolicy/train" not in manifests(made)


def test_a_plugin_without_arguments_may_be_null_and_no_plugins_are_none() -> None:
    assert [plugin.name for plugin in plugins_of(job(plugins={"svc": None}))] == ["svc"]
    assert plugins_of(job(plugins={})) == plugins_of(job(plugins=None)) == ()
    assert manifests(job(plugins={})) == {}


def test_unknown_plugin_stops_the_job_in_upstreams_words() -> None:
    with pytest.raises(JobPluginError, match=r"^failed to get plugin horovod; expected one of svc, env, ssh, "):
        plugins_of(job(plugins={"svc": [], "horovod": []}))


def test_plugins_are_listed_in_the_status_but_hcclrank() -> None:
    assert plugin_resources(job(plugins={"mpi": [], "hcclrank": []})) == {
        "plugin-svc": "svc",
        "plugin-ssh": "ssh",
        "plugin-mpi": "mpi",
    }


# svc


def test_svc_makes_a_config_map_a_service_and_a_network_policy() -> None:
    assert manifests(job(task(replicas=2), plugins={"svc": []})) == {
        "ConfigMap/train-svc": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "train-svc", **METADATA},
            "data": {
                "worker.host": "train-worker-0.train\ntrain-worker-1.train",
                "VC_WORKER_HOSTS": "train-worker-0.train,train-worker-1.train",
                "VC_WORKER_NUM": "2",
            },
        },
        "Service/train": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "train", **METADATA},
            "spec": {"clusterIP": "None", "selector": MEMBERS, "publishNotReadyAddresses": False},
        },
        "NetworkPolicy/train": {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "train", **METADATA},
            "spec": {
                "podSelector": {"matchLabels": MEMBERS},
                "ingress": [{"from": [{"podSelector": {"matchLabels": MEMBERS}}]}],
                "policyTypes": ["Ingress"],
            },
        },
    }


def test_pods_have_names_files_and_variables_by_svc() -> None:
    made = pod(job(task(spec=WITH_INIT), plugins={"svc": []}))
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("train-worker-0", "train")
    assert made["spec"]["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]
    for kind, at in (("containers", 0), ("containers", 1), ("initContainers", 0)):
        each = container(made, at, kind)
        assert each["volumeMounts"] == [{"name": "train-svc", "mountPath": "/etc/volcano"}]
        assert each["env"] == [
            {
                "name": "VC_WORKER_HOSTS",
                "valueFrom": {"configMapKeyRef": {"name": "train-svc", "key": "VC_WORKER_HOSTS"}},
            },
            {
                "name": "VC_WORKER_NUM",
                "valueFrom": {"configMapKeyRef": {"name": "train-svc", "key": "VC_WORKER_NUM"}},
            },
        ]


def test_arguments_of_svc() -> None:
    made = job(
        plugins={"svc": ["--publish-not-ready-addresses", "--disable-network-policy", "--inject-hosts-env=false"]}
    )
    found = manifests(made)
    assert sorted(found) == ["ConfigMap/train-svc", "Service/train"]
    assert found["Service/train"]["spec"]["publishNotReadyAddresses"] is True
    assert "env" not in container(pod(made))
    assert container(pod(made))["volumeMounts"] == [{"name": "train-svc", "mountPath": "/etc/volcano"}]


@pytest.mark.parametrize(
    ("name", "file", "variables"),
    [
        ("ps-main", "ps_main.host", ("VC_PS_MAIN_HOSTS", "VC_PS_MAIN_NUM")),
        # A foreign definition can accept it.
        ("a.b", "a.b.host", ("VC_A.B_HOSTS", "VC_A.B_NUM")),
    ],
)
def test_task_names_in_files_and_variables(name: str, file: str, variables: tuple[str, str]) -> None:
    made = job(task(name), plugins={"svc": []})
    host = f"train-{name}-0.train"
    assert manifests(made)["ConfigMap/train-svc"]["data"] == {file: host, variables[0]: host, variables[1]: "1"}
    assert [each["name"] for each in container(pod(made, name))["env"]] == list(variables)


def test_a_template_with_a_hostname_has_one_host() -> None:
    spec = {"hostname": "me", "subdomain": "here", "containers": [{"name": "a"}]}
    made = job(task(replicas=3, spec=spec), plugins={"svc": []})
    assert manifests(made)["ConfigMap/train-svc"]["data"] == {
        "worker.host": "me.here",
        "VC_WORKER_HOSTS": "me.here",
        "VC_WORKER_NUM": "1",
    }
    assert (pod(made)["spec"]["hostname"], pod(made)["spec"]["subdomain"]) == ("me", "here")


def test_a_task_without_pods_has_no_hosts() -> None:
    assert manifests(job(task(replicas=0), plugins={"svc": []}))["ConfigMap/train-svc"]["data"] == {
        "worker.host": "",
        "VC_WORKER_HOSTS": "",
        "VC_WORKER_NUM": "0",
    }


# env


def test_env_plugin_sets_the_index_in_every_container() -> None:
    made = pod(job(task(spec=WITH_INIT), plugins={"env": []}), index=4)
    both = {"VK_TASK_INDEX": "4", "VC_TASK_INDEX": "4"}
    assert [env(made, 0), env(made, 1), env(made, 0, "initContainers")] == [both] * 3


def test_variables_of_plugins_follow_those_of_the_template_and_override_them() -> None:
    spec = {"containers": [{"name": "a", "env": [{"name": "VC_TASK_INDEX", "value": "own"}]}]}
    assert env(pod(job(task(spec=spec), plugins={"env": []})))["VC_TASK_INDEX"] == "0"


# ssh


def secret(made: Job) -> dict[str, str]:
    found = manifests(made)["Secret/train-ssh"]
    assert found["metadata"] == {"name": "train-ssh", **METADATA}
    return {file: base64.b64decode(text).decode() for file, text in found["data"].items()}


def test_ssh_makes_a_secret_with_four_files() -> None:
    assert secret(job(task("master"), task(replicas=2), plugins={"ssh": []})) == {
        "id_rsa": "PRIVATE\n",
        "id_rsa.pub": "ssh-rsa AAAA\n",
        "authorized_keys": "ssh-rsa AAAA\n",
        "config": (
            "StrictHostKeyChecking no\n"
            "UserKnownHostsFile /dev/null\n"
            "Host train-master-0\n"
            "  HostName train-master-0.train\n"
            "  Port 22\n"
            "Host train-worker-0\n"
            "  HostName train-worker-0.train\n"
            "  Port 22\n"
            "Host train-worker-1\n"
            "  HostName train-worker-1.train\n"
            "  Port 22\n"
        ),
    }


@pytest.mark.parametrize(
    ("argument", "port"), [("2222", 2222), ("0", 22), ("-1", 22), ("65536", 22), ("65535", 65535)]
)
def test_a_port_that_is_none_is_22(argument: str, port: int) -> None:
    spec = {"hostname": "me", "containers": []}
    assert secret(job(task(replicas=2, spec=spec), plugins={"ssh": [f"--ssh-port={argument}"]}))["config"] == (
        f"StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost me\n  HostName me.train\n  Port {port}\n"
    )


def test_a_key_of_the_users_own() -> None:
    files = secret(job(plugins={"ssh": ["--ssh-private-key=P", "--ssh-public-key=Q"]}))
    assert (files["id_rsa"], files["id_rsa.pub"], files["authorized_keys"]) == ("P", "Q", "Q")


@pytest.mark.parametrize(
    ("arguments", "path", "mode"),
    [
        ([], "/root/.ssh", 0o600),
        (["--no-root"], "/root/.ssh", 0o600),
        (["--ssh-key-file-path=/home/me/.ssh"], "/home/me/.ssh", 0o644),
    ],
)
def test_every_container_has_the_files(arguments: list[str], path: str, mode: int) -> None:
    made = pod(job(task(spec=WITH_INIT), plugins={"ssh": arguments}))
    assert made["spec"]["volumes"] == [
        {
            "name": "train-ssh",
            "secret": {
                "secretName": "train-ssh",
                "defaultMode": mode,
                "items": [
                    {"key": "id_rsa", "path": ".ssh/id_rsa"},
                    {"key": "id_rsa.pub", "path": ".ssh/id_rsa.pub"},
                    {"key": "authorized_keys", "path": ".ssh/authorized_keys"},
                    {"key": "config", "path": ".ssh/config"},
                ],
            },
        }
    ]
    for kind, at in (("containers", 0), ("containers", 1), ("initContainers", 0)):
        assert container(made, at, kind)["volumeMounts"] == [
            {"name": "train-ssh", "mountPath": path, "subPath": ".ssh"}
        ]


def test_a_key_is_made_only_when_the_secret_is() -> None:
    made: list[SshKey] = []

    def generate() -> SshKey:
        made.append(KEY)
        return KEY

    (found,) = desired_objects(job(plugins={"ssh": []}), generate)
    assert (found.kind, found.name, found.follows_job) == ("Secret", "train-ssh", False)
    assert found.changed({"data": {"id_rsa": "b2xk"}}) is None
    assert made == []
    found.manifest()
    assert made == [KEY]


def test_a_generated_key_is_one_that_ssh_reads() -> None:
    key = generate_rsa_key()
    assert key.private.startswith("-----BEGIN RSA PRIVATE KEY-----\n")
    kind, body, *rest = key.public.split(" ")
    assert (kind, rest, body[-1]) == ("ssh-rsa", [], "\n")
    # The length of the modulus, with a zero in front, in the wire format of RFC 4253.
    assert base64.b64decode(body)[18:23] == b"\x00\x00\x01\x01\x00"


# Existing objects


def test_the_host_files_follow_the_job() -> None:
    two = wanted("ConfigMap", plugins={"svc": []})
    existing = two.manifest()
    assert two.follows_job
    assert two.changed(existing) is None
    grown = job(task(replicas=2), plugins={"svc": []})
    (now,) = [each for each in desired_objects(grown, lambda: KEY) if each.kind == "ConfigMap"]
    existing["data"]["stale.host"] = "x"
    assert now.changed(existing) == {
        "data": {
            "worker.host": "train-worker-0.train\ntrain-worker-1.train",
            "VC_WORKER_HOSTS": "train-worker-0.train,train-worker-1.train",
            "VC_WORKER_NUM": "2",
            "stale.host": None,
        }
    }


def test_defaults_of_the_api_server_are_no_change() -> None:
    service = wanted("Service", plugins={"svc": []})
    existing = service.manifest()
    existing["spec"] |= {"clusterIPs": ["None"], "type": "ClusterIP", "sessionAffinity": "None"}
    del existing["spec"]["publishNotReadyAddresses"]
    assert service.changed(existing) is None
    existing["spec"]["selector"] = {"app": "other", "volcano.sh/job-name": "train"}
    assert service.changed(existing) == {"spec": {"selector": {"app": None, "volcano.sh/job-namespace": "team"}}}


def test_foreign_objects_are_distinguished_from_the_jobs_own() -> None:
    service = wanted("Service", plugins={"svc": []})
    own = service.manifest()
    assert service.belongs_to_job(own)
    others: list[Json] = [
        {"metadata": {"name": "train"}},
        {"metadata": {"ownerReferences": [{**OWNER, "uid": "an earlier job of this name"}]}},
        {"metadata": {"ownerReferences": "odd"}},
        {},
    ]
    assert not any(service.belongs_to_job(each) for each in others)
