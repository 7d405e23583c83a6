"""Input files and the messages about their mistakes: the file, the place in it, and the fix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phalanx.model.devices.cards import CardShare
from phalanx.simulation.cluster import SimulatedCluster, pool, read_cluster
from phalanx.simulation.errors import InputError
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.spans import seconds
from phalanx.simulation.workloads.distributions import Distribution, stream
from phalanx.simulation.workloads.reading import read_workloads
from phalanx.simulation.workloads.swf import read_swf, swf_jobs

SWF = "; MaxProcs: 100\n; UnixStartTime: 843480031\n"
ROW = "    1        0 964980  97225   56     -1    -1   56 210000    -1  1   7   1  -1 -1 -1 -1 -1\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,2,T4\nn1,64000,1024,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
ACME = "job_id,user,node_num,gpu_num,cpu_num,submit_time,duration,queue\n"
WORKLOAD = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: w}
spec:
  jobs:
  - {name: train, requests: {cpu: 4}, runTime: 10m, %s}
"""
CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: a}
spec: {%s}
"""


def no_file(name: str) -> str:
    raise InputError(f"{name}: not there")


def jobs(text: str, name: str, seed: int = 1, cluster: SimulatedCluster | None = None) -> list[SimulatedJob]:
    (workload,) = read_workloads(text, name, no_file)
    return workload.jobs(seed, cluster or SimulatedCluster("c"))


def test_a_log_is_one_pod_a_job_in_a_pool_and_a_gang_elsewhere() -> None:
    log = read_swf(SWF + ROW, "kth.swf")
    assert (log.processors, log.start) == (100, 843480031)
    (pooled,) = swf_jobs(log, pooled=True, processors=100)
    assert (pooled.submit, pooled.run_time, pooled.width, pooled.pods, pooled.user) == (0, 97225, 56, 1, "user-7")
    assert dict(pooled.pod_class.requests) == {"cpu": 56_000}
    assert (pooled.limits.limit, pooled.pod_class.run_limit) == (210_000, 210_000)
    (gang,) = swf_jobs(log, pooled=False)
    assert (gang.pods, gang.minimum, dict(gang.pod_class.requests)) == (56, 56, {"cpu": 1000})


def test_jobs_of_a_log_that_never_ran_are_left_out_and_unknown_sizes_are_the_allocated_ones() -> None:
    never = ROW.replace("97225", "   -1")
    unknown = ROW.replace(" 56 210000", " -1     -1")
    (job,) = swf_jobs(read_swf(SWF + never + unknown, "x.swf"), pooled=True, processors=100)
    assert (job.width, job.limits.limit, job.pod_class.run_limit) == (56, 0, 0)


def test_a_job_larger_than_the_machine_gets_all_of_it() -> None:
    (job,) = swf_jobs(read_swf(SWF + ROW, "x.swf"), pooled=True, processors=40)
    assert job.width == 40


def test_the_machine_of_a_log_is_one_node_with_all_processors() -> None:
    cluster = read_cluster(SWF + ROW, "kth.swf")
    assert (cluster.processors, cluster.start) == (100, 843480031)
    assert [(node.name, dict(node.allocatable)["cpu"]) for node in cluster.nodes] == [("pool", 100_000)]


def test_pods_of_openb_ask_for_parts_of_cards_and_run_from_when_they_were_scheduled() -> None:
    rows = "b,4000,1024,1,460,T4|A10,20,120,50\na,6000,2048,2,1000,,0,10,\nc,1000,1024,0,0,,5,5,5\n"
    first, third, second = jobs(PODS + rows, "pods.csv")
    assert (first.name, first.submit, first.run_time) == ("a", 0, 10)
    assert (second.name, second.submit, second.run_time) == ("b", 20, 70)
    assert (third.name, third.run_time) == ("c", 1)
    assert first.pod_class.devices is not None
    assert first.pod_class.devices.shares == (CardShare(2, 1000),)
    assert dict(second.pod_class.requests)["gpu-milli"] == 460
    assert second.pod_class.affinity is not None
    assert second.pod_class.affinity[0].expressions[0].values == ("A10", "T4")
    assert third.pod_class.devices is None


def test_nodes_of_openb_have_cards_that_are_shared() -> None:
    cluster = read_cluster(NODES, "nodes.csv")
    assert [(node.name, len(node.cards)) for node in cluster.nodes] == [("n0", 2), ("n1", 0)]
    assert dict(cluster.nodes[0].allocatable)["gpu-milli"] == 2000


def test_jobs_of_acme_are_gangs_of_a_pod_a_node_from_the_first_submission_on() -> None:
    rows = (
        "7,u1,2,16,30,2023-03-01 00:00:10+08:00,600,batch\n"
        "8,u2,1,0,4,2023-03-01 00:00:00+08:00,60,\n9,u2,1,0,4,2023-03-01 00:00:00+08:00,,\n"
    )
    first, second = jobs(ACME + rows, "acme.csv")
    assert (first.name, first.submit, first.pods, first.queue) == ("job-8", 0, 1, "default")
    assert (second.submit, second.pods, second.width, second.queue) == (10, 2, 16, "batch")
    assert dict(second.pod_class.requests) == {"cpu": 15_000, "nvidia.com/gpu": 8}


def test_described_workload_is_equal_for_one_seed_and_different_for_two() -> None:
    text = WORKLOAD % "count: 20, interval: {tailMean: 60}, pods: {1: 1, 8: 1}"
    once, again, other = (jobs(text, "w.yaml", seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other
    assert {job.pods for job in once} == {1, 8}
    assert [job.submit for job in once] == sorted(job.submit for job in once)


def test_draws_for_one_purpose_do_not_shift_draws_for_another() -> None:
    fixed, drawn = (
        jobs(WORKLOAD % f"count: 20, interval: {{tailMean: 60}}, pods: {pods}", "w.yaml")
        for pods in ("4", "{1: 1, 8: 1}")
    )
    assert [job.submit for job in fixed] == [job.submit for job in drawn]


def test_limits_and_estimates_are_spans_or_factors_of_the_run_time() -> None:
    (job,) = jobs(WORKLOAD % "limit: {factor: 2}, estimate: 15m, grace: 30", "w.yaml")
    assert (job.limits.limit, job.limits.estimate, job.pod_class.run_limit) == (1200, 900, 1230)


def test_a_pod_may_be_written_as_in_the_api() -> None:
    text = (
        WORKLOAD % "pod: {nodeSelector: {zone: a}, containers: [{name: c, resources: {requests: {cpu: 2}}}]}"
    ).replace("requests: {cpu: 4}, runTime", "runTime", 1)
    (job,) = jobs(text, "w.yaml")
    assert job.pod_class.node_selector == (("zone", "a"),)
    assert dict(job.pod_class.requests) == {"cpu": 2000}


def test_distributions_have_their_declared_moments() -> None:
    draws = stream(1, "test")
    tail = Distribution({"minimum": "10m", "tailMean": 600}, "x")
    drawn = [tail.draw(draws) for _ in range(2000)]
    assert min(drawn) >= 600
    assert sum(drawn) / len(drawn) == pytest.approx(1200, rel=0.1)
    uniform = Distribution({"uniform": [10, "1m"]}, "x")
    assert {uniform.draw(draws) for _ in range(2000)} == set(range(10, 61))
    median = sorted(Distribution({"median": 100, "sigma": 1}, "x").draw(draws) for _ in range(2001))[1000]
    assert median == pytest.approx(100, rel=0.15)
    assert Distribution("2h", "x").draw(draws) == 7200


def test_pool_expands_to_its_nodes_and_queues_are_those_of_the_api() -> None:
    text = (CLUSTER % "count: 3, allocatable: {cpu: 8}, labels: {zone: a}") + (
        "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {weight: 3}\n"
    )
    _, events = read_cluster(text, "c.yaml").open()
    assert [type(event).__name__ for event in events] == ["NodeUpdated"] * 3 + ["AccountUpdated"]


@pytest.mark.parametrize(
    ("read", "text", "name", "told"),
    [
        (jobs, SWF + "1 2 3\n", "x.swf", "x.swf: line 3: 3 fields; a job of the Standard Workload Format has 18"),
        (jobs, SWF + ROW.replace("97225", "  abc"), "x.swf", "x.swf: line 3: field 4 is 'abc'; write a number"),
        (jobs, SWF, "x.swf", "x.swf: no job; a log has one line of 18 numbers a job"),
        (read_cluster, ROW, "x.swf", "x.swf: no header MaxProcs; add the line '; MaxProcs: N'"),
        (read_cluster, "; MaxProcs: many\n" + ROW, "x.swf", "x.swf: header MaxProcs is 'many'"),
        (jobs, "a,b\n1,2\n", "x.csv", "x.csv: line 1: neither a list of pods"),
        (jobs, PODS.replace("cpu_milli,", ""), "x.csv", "x.csv: line 1: no column cpu_milli"),
        (jobs, PODS + "a,many,1,0,0,,0,1,\n", "x.csv", "x.csv: line 2: cpu_milli is 'many'; write a number"),
        (jobs, PODS + "a,1,1,1,2000,,0,1,\n", "x.csv", "x.csv: line 2: gpu_milli is 2000; write 1 to 1000"),
        (jobs, PODS + "a,1,1,0,0,,9,1,\n", "x.csv", "x.csv: line 2: deletion_time is 1; write at least"),
        (jobs, PODS + "a,1,1\n", "x.csv", "x.csv: line 2: write 9 values, one for each column"),
        (jobs, ACME + "1,u,1,1,1,yesterday,5,q\n", "x.csv", "x.csv: line 2: submit_time is 'yesterday'"),
        (read_cluster, NODES + "n2,x,1,0,\n", "n.csv", "n.csv: line 4: cpu_milli is 'x'"),
        (jobs, "a: [", "w.yaml", "w.yaml: not YAML"),
        (jobs, "a: 1", "w.yaml", "w.yaml: document 1: expected an object with apiVersion and kind"),
        (jobs, "kind: Pod", "w.yaml", "w.yaml: document 1 (Pod): metadata.name is missing"),
        (jobs, WORKLOAD % "count: many", "w.yaml", "spec: Expected `int`, got `str` - at `$.jobs[0].count`"),
        (jobs, WORKLOAD % "cpus: 4", "w.yaml", "spec: Object contains unknown field `cpus`"),
        (jobs, WORKLOAD % "interval: soon", "w.yaml", "train: interval is 'soon'; write seconds, or a number with"),
        (jobs, WORKLOAD % "interval: {mean: 5}", "w.yaml", "train: interval has the keys mean; write a span"),
        (jobs, WORKLOAD % "interval: {uniform: [9, 1]}", "w.yaml", "interval.uniform is [9, 1]; write the shorter"),
        (jobs, WORKLOAD % "pods: 0", "w.yaml", "train: pods is 0; write a whole number from 1"),
        (
            jobs,
            WORKLOAD % "pods: 2, minimum: 3",
            "w.yaml",
            "train: minimum is 3; write at most the number of pods, 2",
        ),
        (jobs, WORKLOAD % "limit: {factor: -1}", "w.yaml", "train: limit.factor is -1; write a positive number"),
        (jobs, WORKLOAD % "count: 0", "w.yaml", "train: count is 0; write at least 1"),
        (jobs, (WORKLOAD % "count: 1").replace("cpu: 4", "cpu: lots"), "w.yaml", "train: "),
        (
            jobs,
            (WORKLOAD % "count: 1") + "  events: [{at: 5}]",
            "w.yaml",
            "write one of nodeLost, apply and delete",
        ),
        (
            read_cluster,
            CLUSTER % "count: 0, allocatable: {cpu: 1}",
            "c.yaml",
            "spec.count is 0; write a whole number",
        ),
        (read_cluster, CLUSTER % "count: 1", "c.yaml", "spec.allocatable is null; write {cpu: 64, memory: 256Gi}"),
        (read_cluster, CLUSTER % "size: 1", "c.yaml", "spec.size is unknown; write count, allocatable"),
        (read_cluster, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}", "c.yaml", "does not read v1 Secret"),
        (read_cluster, "apiVersion: v1\nkind: Namespace\nmetadata: {name: s}", "c.yaml", "c.yaml: no node; write"),
        (
            read_cluster,
            (CLUSTER % "count: 1, allocatable: {cpu: 1}")
            + "---\napiVersion: scheduling.volcano.sh/v9\nkind: Queue\nmetadata: {name: q}\n",
            "c.yaml",
            "apiVersion is scheduling.volcano.sh/v9; write one of scheduling.volcano.sh/v1beta1",
        ),
    ],
)
def test_invalid_input_is_reported_with_its_place_and_a_fix(
    read: Callable[[str, str], object], text: str, name: str, told: str
) -> None:
    with pytest.raises(InputError) as error:
        read(text, name)
    assert told in str(error.value)
    assert name in str(error.value)


def test_a_pool_needs_processors() -> None:
    with pytest.raises(InputError, match="0 processors; write at least 1"):
        pool(0, "x")


@pytest.mark.parametrize(
    ("text", "length"), [("90", 90), ("90m", 5400), (12, 12), ("2d", 172_800), ("1w", 604_800)]
)
def test_spans(text: object, length: int) -> None:
    assert seconds(text, "x") == length


@pytest.mark.parametrize("text", ["", "-1", "1.5h", -1, 1.5, None, True, "9" * 13])
def test_invalid_duration_is_rejected(text: object) -> None:
    with pytest.raises(InputError, match=r"x is .*; write seconds"):
        seconds(text, "x")
