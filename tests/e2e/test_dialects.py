"""Every way in which a user declares a gang (docs/rules/coscheduling.md, 1.1), as they would write it."""

from __future__ import annotations

import pytest
import yaml

from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

_SPEC = """
  schedulerName: phalanx
  containers:
  - name: main
    image: example/main
    resources: {requests: {cpu: "1"}}
"""


def pods(metadata: str, spec: str = "") -> list[str]:
    """Three members as a controller stamps them out of one template."""
    return [
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: member-{number}\n{metadata}spec:{spec}{_SPEC}"
        for number in range(3)
    ]


def labels(**pairs: str) -> str:
    return "  labels:\n" + "".join(f"    {key}: {value!r}\n" for key, value in pairs.items())


def notes(**pairs: str) -> str:
    return "  annotations:\n" + "".join(f"    {key}: {value!r}\n" for key, value in pairs.items())


def group(api: str, spec: str) -> str:
    return f"apiVersion: {api}\nkind: PodGroup\nmetadata: {{name: job}}\nspec: {spec}"


SIGS, SIGS_NAME = "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name"
KOORDINATOR = "gang.scheduling.koordinator.sh"

# Name of the declaration -> (metadata of the members, further spec, the group object or "").
DECLARATIONS: dict[str, tuple[str, str, str]] = {
    "Kueue's plain pod group": (
        labels(**{"kueue.x-k8s.io/pod-group-name": "job"}) + notes(**{"kueue.x-k8s.io/pod-group-total-count": "3"}),
        "",
        "",
    ),
    "D1 kube-batch annotation, incubator group": (
        notes(**{"scheduling.k8s.io/group-name": "job"}),
        "",
        group("scheduling.incubator.k8s.io/v1alpha1", "{minMember: 3}"),
    ),
    "D1 kube-batch annotation, the spelling of the design": (
        notes(**{"scheduling.k8s.io/group-name": "job"}),
        "",
        group("incubator.scheduling.k8s.io/v1alpha1", "{minMembers: 3}"),
    ),
    "D1 kube-batch annotation, its last group": (
        notes(**{"scheduling.k8s.io/group-name": "job"}),
        "",
        group("scheduling.sigs.dev/v1alpha2", "{minMember: 3}"),
    ),
    "D1 Volcano": (
        notes(**{"scheduling.k8s.io/group-name": "job"}),
        "",
        group("scheduling.volcano.sh/v1beta1", "{minMember: 3, queue: default}"),
    ),
    "D2 labels of KEP-2": (labels(**{"pod-group/name": "job", "pod-group/min-available": "3"}), "", ""),
    "D3 labels of scheduler-plugins 0.18 and ACK": (
        labels(**{SIGS_NAME: "job", f"{SIGS}/min-available": "3"}),
        "",
        "",
    ),
    "D3' labels under x-k8s.io": (
        labels(
            **{
                "pod-group.scheduling.x-k8s.io/name": "job",
                "pod-group.scheduling.x-k8s.io/min-available": "3",
            }
        ),
        "",
        "",
    ),
    "D3 a name that points at an object": (
        labels(**{SIGS_NAME: "job"}),
        "",
        group("scheduling.sigs.k8s.io/v1alpha1", "{minMember: 3}"),
    ),
    "D4 scheduler-plugins 0.19, Koordinator": (
        labels(**{SIGS: "job"}),
        "",
        group("scheduling.sigs.k8s.io/v1alpha1", "{minMember: 3, scheduleTimeoutSeconds: 10}"),
    ),
    "D5 scheduler-plugins": (
        labels(**{"scheduling.x-k8s.io/pod-group": "job"}),
        "",
        group("scheduling.x-k8s.io/v1alpha1", "{minMember: 3, scheduleTimeoutSeconds: 10}"),
    ),
    "D6 Koordinator's annotations": (
        notes(**{f"{KOORDINATOR}/name": "job", f"{KOORDINATOR}/min-available": "3"}),
        "",
        "",
    ),
    "D7 the native field": (
        "",
        "\n  schedulingGroup: {podGroupName: job}",
        group("scheduling.k8s.io/v1alpha2", "{schedulingPolicy: {gang: {minCount: 3}}}"),
    ),
}


@pytest.mark.parametrize("name", DECLARATIONS)
async def test_a_gang_waits_for_its_members_and_starts_as_one(world: World, name: str) -> None:
    metadata, spec, declared = DECLARATIONS[name]
    await world.node("n1")
    scheduler = await world.scheduler()
    if declared:
        await world.apply(declared)
    first, second, third = pods(metadata, spec)
    await world.apply(first)
    await world.apply(second)
    # Messages about Kubernetes' own groups use Kubernetes' words.
    await world.until_held("member-0", "member-1", words="2 of the 3 required pods|have 2 of 3 pods")
    await world.apply(third)
    placement = await world.until_bound("member-0", "member-1", "member-2")
    assert set(placement.values()) == {"n1"}
    await world.settled(scheduler, quiet=0.3)
    assert scheduler.wire.count(lambda write: write.endswith("/binding")) == 3


@pytest.mark.parametrize("name", [name for name, (_, _, declared) in DECLARATIONS.items() if declared])
async def test_pods_that_come_before_their_object_wait_for_it(world: World, name: str) -> None:
    metadata, spec, declared = DECLARATIONS[name]
    await world.node("n1")
    await world.scheduler()
    for member in pods(metadata, spec):
        await world.apply(member)
    await world.until_held("member-0", "member-1", "member-2", words="not found|waiting for PodGroup")
    await world.until_event("PodGroupNotFound")
    await world.apply(declared)
    await world.until_bound("member-0", "member-1", "member-2")


@pytest.mark.parametrize("name", DECLARATIONS)
async def test_objects_created_before_the_scheduler_starts_are_scheduled_as_whole_gangs(
    world: World, name: str
) -> None:
    """A scheduler that starts must not take the first pod that it reads for the whole gang."""
    metadata, spec, declared = DECLARATIONS[name]
    await world.node("n1", cpu="2")
    for member in pods(metadata, spec):
        await world.apply(member)
    if declared:
        await world.apply(declared)
    await world.scheduler()
    await world.until_held("member-0", "member-1", "member-2", words="2 of the 3 required pods .* fit")


async def test_manifests_of_each_dialect_match_their_description() -> None:
    for metadata, spec, declared in DECLARATIONS.values():
        for text in [*pods(metadata, spec), declared]:
            assert text == "" or {"apiVersion", "kind", "metadata", "spec"} <= set(yaml.safe_load(text))
