"""mpi, pytorch, tensorflow, ray and hcclrank: the variables, ports and commands that the frameworks wait for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from phalanx.jobs.plugins.plugin import JobPluginError
from tests.jobs.written import OWNER, container, env, job, manifests, pod, task

BOTH = {"initContainers": [{"name": "first"}], "containers": [{"name": "a"}, {"name": "b"}]}
FIXED = {"hostname": "me", "subdomain": "here", "containers": [{"name": "a"}]}

# mpi


def test_only_the_master_knows_the_hosts_of_mpi_and_all_open_the_port() -> None:
    made = job(task("master", spec=BOTH), task(replicas=2, spec=BOTH), plugins={"mpi": []})
    master, worker = pod(made, "master"), pod(made)
    for kind, at in (("containers", 0), ("containers", 1), ("initContainers", 0)):
        assert env(master, at, kind)["MPI_HOST"] == "train-worker-0.train,train-worker-1.train"
        assert "MPI_HOST" not in env(worker, at, kind)
        for each in (master, worker):
            assert container(each, at, kind)["ports"] == [{"name": "mpijob-port", "containerPort": 22}]


def test_arguments_of_mpi() -> None:
    arguments = ["--master=mpimaster", "-worker", "mpiworker", "--port=2022"]
    made = job(task("mpimaster"), task("mpiworker", replicas=1), plugins={"mpi": arguments})
    assert env(pod(made, "mpimaster"))["MPI_HOST"] == "train-mpiworker-0.train"
    assert container(pod(made, "mpiworker"))["ports"] == [{"name": "mpijob-port", "containerPort": 2022}]


def test_a_port_that_is_open_is_not_opened_again() -> None:
    own = [{"name": "ssh", "containerPort": 22}]
    made = job(task("master"), task(spec={"containers": [{"name": "a", "ports": own}]}), plugins={"mpi": []})
    assert container(pod(made))["ports"] == own


@pytest.mark.parametrize(
    ("workers", "hosts"), [(task(replicas=0), ""), (task(replicas=3, spec=FIXED), "me.here")], ids=["none", "fixed"]
)
def test_workers_that_are_none_or_one(workers: dict[str, object], hosts: str) -> None:
    assert env(pod(job(task("master"), workers, plugins={"mpi": []}), "master"))["MPI_HOST"] == hosts


def test_a_master_without_workers_gets_nothing() -> None:
    made = container(pod(job(task("master"), plugins={"mpi": []}), "master"))
    assert "MPI_HOST" not in env({"spec": {"containers": [made]}})
    assert "ports" not in made


# pytorch


def test_variables_of_pytorch() -> None:
    made = job(task("master"), task(replicas=2), task("other", replicas=7), plugins={"pytorch": []})
    common = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
    assert env(pod(made, "master")) == {**common, "RANK": "0"}
    assert env(pod(made, index=0)) == {**common, "RANK": "1"}
    assert env(pod(made, index=1)) == {**common, "RANK": "2"}
    assert env(pod(made, "other")) == common
    assert container(pod(made))["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_arguments_of_pytorch() -> None:
    arguments = ["--master=m-0", "--worker=w", "--port", "29500"]
    made = job(task("m-0", spec=FIXED), task("w", replicas=1), plugins={"pytorch": arguments})
    assert env(pod(made, "w")) == {
        "MASTER_ADDR": "me.here",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "2",
        "RANK": "1",
    }


def test_without_its_master_pytorch_does_nothing() -> None:
    assert env(pod(job(task(), plugins={"pytorch": []}))) == {}


def test_pytorch_leaves_init_containers_alone() -> None:
    made = pod(job(task("master", spec=BOTH), plugins={"pytorch": []}), "master")
    assert env(made, 0, "initContainers") == {}
    assert env(made, 1)["RANK"] == "0"


def test_workers_may_wait_for_the_master() -> None:
    made = job(
        task("master"), task(spec=BOTH), plugins={"pytorch": ["--wait-master-enabled", "--wait-master-timeout=9"]}
    )
    first, wait = pod(made)["spec"]["initContainers"]
    assert first["name"] == "first"
    assert (wait["name"], wait["image"], wait["command"][:2]) == ("wait-for-master", "busybox:1.36.1", ["sh", "-c"])
    script = wait["command"][2]
    assert re.search(r"nc -z train-master-0\.train 23456\b", script)
    assert re.search(r"^left=9$", script, re.MULTILINE)
    assert "initContainers" not in pod(made, "master")["spec"]


def test_an_init_container_of_that_name_is_the_users() -> None:
    own = {"initContainers": [{"name": "wait-for-master", "image": "mine"}], "containers": []}
    made = job(
        task("master"), task(spec=own), plugins={"pytorch": ["--wait-master-enabled", "--wait-master-image=x"]}
    )
    (only,) = pod(made)["spec"]["initContainers"]
    assert only["image"] == "mine"


# tensorflow


def test_the_cluster_of_tensorflow() -> None:
    tasks = [task("evaluator"), task("chief"), task("worker", replicas=2), task("ps")]
    made = job(*tasks, task("tensor-board"), plugins={"tensorflow": []})
    cluster = (
        '{"cluster":{"ps":["train-ps-0.train:2222"],'
        '"worker":["train-worker-0.train:2222","train-worker-1.train:2222"],'
        '"chief":["train-chief-0.train:2222"],"evaluator":["train-evaluator-0.train:2222"]}'
    )
    assert env(pod(made, index=1))["TF_CONFIG"] == cluster + ',"task":{"type":"worker","index":1}}'
    assert env(pod(made, "ps"))["TF_CONFIG"] == cluster + ',"task":{"type":"ps","index":0}}'
    assert env(pod(made, "tensor-board"))["TF_CONFIG"] == cluster + ',"task":{"type":"tensor-board","index":0}}'


def test_roles_that_are_not_there_are_left_out_and_tasks_may_be_called_otherwise() -> None:
    made = job(
        task("server"), task("slave"), plugins={"tensorflow": ["--ps=server", "--worker=slave", "--port=5000"]}
    )
    assert env(pod(made, "slave"))["TF_CONFIG"] == (
        '{"cluster":{"ps":["train-server-0.train:5000"],"worker":["train-slave-0.train:5000"]},'
        '"task":{"type":"worker","index":0}}'
    )


def test_a_single_pod_is_no_cluster() -> None:
    assert "TF_CONFIG" not in env(pod(job(task(), plugins={"tensorflow": []})))
    assert "TF_CONFIG" in env(pod(job(task(replicas=2), plugins={"tensorflow": []})))


# ray


def ray(head: str, worker: str) -> list[dict[str, object]]:
    side = {"name": "side"}
    return [
        task("head", spec={"containers": [side, {"name": head, "command": ["own"]}]}),
        task("worker", replicas=2, spec={"containers": [{"name": worker}, side]}),
    ]


def test_ray_starts_its_head_and_its_workers() -> None:
    made = job(*ray("head", "worker"), plugins={"ray": []})
    head, worker = pod(made, "head"), pod(made)
    assert container(head, 1)["command"] == [
        "sh",
        "-c",
        "ray start --head --block --dashboard-host=0.0.0.0 --port=6379 --dashboard-port=8265 "
        "--ray-client-server-port=10001",
    ]
    assert container(head, 1)["ports"] == [
        {"name": "gcs", "containerPort": 6379},
        {"name": "dashboard", "containerPort": 8265},
        {"name": "client-server", "containerPort": 10001},
    ]
    assert container(worker, 0)["command"] == ["sh", "-c", "ray start --block --address=train-head-0.train:6379"]
    assert "ports" not in container(worker, 0)
    assert "command" not in container(head, 0)
    assert "command" not in container(worker, 1)


def test_the_head_of_ray_has_a_service() -> None:
    assert manifests(job(*ray("head", "worker"), plugins={"ray": []}))["Service/train-head-svc"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train-head-svc", "namespace": "team", "ownerReferences": [OWNER]},
        "spec": {
            "selector": {
                "volcano.sh/job-name": "train",
                "volcano.sh/job-namespace": "team",
                "volcano.sh/task-spec": "head",
            },
            "ports": [
                {"name": "gcs", "port": 6379, "targetPort": "gcs", "protocol": "TCP"},
                {"name": "dashboard", "port": 8265, "targetPort": "dashboard", "protocol": "TCP"},
                {"name": "client-server", "port": 10001, "targetPort": "client-server", "protocol": "TCP"},
            ],
        },
    }


def test_arguments_of_ray() -> None:
    arguments = ["--headContainer=h", "--workerContainer=w", "--port=1", "--dashboardPort=2", "--clientPort=3"]
    made = job(*ray("h", "w"), plugins={"ray": arguments})
    assert container(pod(made, "head"), 1)["command"][2].endswith(
        "--port=1 --dashboard-port=2 --ray-client-server-port=3"
    )
    assert container(pod(made))["command"][2] == "ray start --block --address=train-head-0.train:1"


def test_ray_without_a_head_stops_the_job_in_upstreams_words() -> None:
    with pytest.raises(JobPluginError, match=r"^job train doesn't have head task head$"):
        pod(job(task(), plugins={"ray": []}))


# hcclrank


def rank(plugins: dict[str, list[str]], name: str = "worker", index: int = 0, **more: Any) -> str | None:
    made = job(task("master", replicas=2), task(replicas=3, **more), task("other"), plugins=plugins)
    found = pod(made, name, index)["metadata"]["annotations"].get("hccl/rankIndex")
    assert found is None or isinstance(found, str)
    return found


def test_ranks_of_ascend_devices_continue_from_masters_to_workers() -> None:
    assert [rank({"hcclrank": []}, "master", index) for index in range(2)] == ["0", "1"]
    assert [rank({"hcclrank": []}, "worker", index) for index in range(3)] == ["2", "3", "4"]
    assert rank({"hcclrank": []}, "other") is None
    assert rank({"hcclrank": ["--master=other", "--worker=worker"]}, index=1) == "2"


def test_the_rank_of_pytorch_comes_before_that_of_the_tasks() -> None:
    assert rank({"hcclrank": [], "pytorch": []}, index=1) == "2"
    assert rank({"hcclrank": [], "pytorch": []}, "master", 1) == "0"


def test_a_rank_that_the_template_states() -> None:
    stated = {"containers": [{"name": "a", "env": [{"name": "RANK", "value": "9"}]}]}
    assert rank({"hcclrank": []}, spec=stated) == "9"
    elsewhere = {"containers": [{"name": "a", "env": [{"name": "RANK", "valueFrom": {}}]}]}
    assert rank({"hcclrank": []}, spec=elsewhere) == "2"
    each = task()
    each["template"]["metadata"] = {"annotations": {"hccl/rankIndex": "5"}}
    assert pod(job(each, plugins={"hcclrank": []}))["metadata"]["annotations"]["hccl/rankIndex"] == "5"
