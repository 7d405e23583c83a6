"""The demos check their claims: they exit with 0 where the claim is true, and with 1 where it is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.demo.ranks import MEET
from phalanx.demo.scenarios import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

NO_QUEUES = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phalanx.cli", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.timeout(240)  # three clusters are started by one of them
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_each_demo_confirms_its_claims(name: str) -> None:
    shown = play(name)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.endswith(f"demo {name}: all steps succeeded\n")


def test_a_policy_that_shares_nothing_makes_the_claim_of_the_queues_false(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(NO_QUEUES)
    shown = play("queues", "--policy", str(policy))
    assert shown.returncode == 1
    assert "the demo failed" in shown.stderr
    assert "until production: 8, research: 4 run; observed production:" in shown.stderr


def test_demo_without_the_action_preempt_fails_as_no_pod_is_evicted_for_the_urgent_job(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(NO_QUEUES)
    shown = play("gang-preemption", "--policy", str(policy))
    assert shown.returncode == 1
    assert "in vain until four pods are terminating" in shown.stderr


def test_a_rank_that_starts_before_its_master_waits_for_the_name(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.2 train-worker-0\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": str(port), "PHALANX_HOSTS": str(hosts)}

    def start(rank: int) -> subprocess.Popen[str]:
        told = {**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": "2"}
        return subprocess.Popen([sys.executable, "-c", MEET], env=told, stdout=subprocess.PIPE, text=True)

    with start(1) as worker:
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(2)
        fresh = tmp_path / "fresh"
        fresh.write_text("127.0.0.2 train-worker-0\n127.0.0.1 train-master-0 train-master-0.train\n")
        fresh.replace(hosts)
        with start(0) as master:
            printed = [rank.communicate(timeout=30)[0] for rank in (master, worker)]
    assert all(f"rank {rank} of 2 met all ranks" in text for rank, text in enumerate(printed)), printed
    assert all("the sum of all ranks is 1" in text for text in printed), printed
