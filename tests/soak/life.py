"""Lives: a seed and a policy give a story; a failing story shrinks to its relevant steps."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from .cluster import POLICIES, SoakCluster
from .draws import Draw
from .feature_plays import resume
from .invariants import check_plan
from .next_process import differences
from .plays import play
from .steps import Step

#: Steps of one life: enough to show memory held for deleted objects.
LIFE = 2000
#: After this number of steps the cluster comes to rest.
REST_EVERY = 10


class Story(msgspec.Struct, frozen=True):
    """Steps of a cluster under a policy."""

    policy: str
    steps: list[Step]


class Life(msgspec.Struct):
    """A story with its result: `fault` describes the failure at its last step, "" for none."""

    story: Story
    cluster: SoakCluster
    fault: str = ""


def live(seed: int, steps: int, done: Callable[[int], None] = lambda number: None, compares: bool = True) -> Life:
    """Draws a life and lives it, up to the first fault."""
    policy = list(POLICIES)[seed % len(POLICIES)]
    cluster, draw = SoakCluster(policy), Draw(seed)
    life = Life(Story(policy, []), cluster)
    for number in range(steps):
        step = draw.step(cluster)
        life.story.steps.append(step)
        life.fault = fault_of(cluster, step, number, compares)
        done(number)
        if life.fault:
            break
    return life


def relive(story: Story, compares: bool = True) -> Life:
    """Lives a story once more."""
    cluster = SoakCluster(story.policy)
    for number, step in enumerate(story.steps):
        if fault := fault_of(cluster, step, number, compares):
            return Life(Story(story.policy, story.steps[: number + 1]), cluster, fault)
    return Life(story, cluster)


def fault_of(cluster: SoakCluster, step: Step, number: int, compares: bool = True) -> str:
    """Return the fault after a step, "" for none. With `compares` the next process counts too."""
    try:
        play(step, cluster)
        resume(cluster)
        cluster.answer()
        check_plan(cluster, cluster.cycle())
        if number % REST_EVERY == REST_EVERY - 1:
            cluster.rest()
        if compares and cluster.scheduler.idle and (fault := differences(cluster)):
            return f"NextProcess: {fault}"
    except Exception as error:
        return f"{type(error).__name__}: {error}{_place_of(error)}"
    return ""


def _place_of(error: Exception) -> str:
    """Return the failed line of an assertion without a message."""
    if str(error) or error.__traceback__ is None:
        return ""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{last.line} ({Path(last.filename).name})"


def shrink(story: Story, patience: int = 2000) -> Story:
    """Return a shorter story that fails as well, after at most `trials` trials (Zeller's ddmin: omits ever
    smaller parts).
    """
    steps, size, kind = list(story.steps), max(1, len(story.steps) // 2), kind_of(relive(story).fault)
    while size and patience:
        begin = 0
        while begin < len(steps) and patience:
            patience -= 1
            fewer = Story(story.policy, steps[:begin] + steps[begin + size :])
            found = relive(fewer)
            if found.fault and kind_of(found.fault) == kind:
                steps = list(found.story.steps)
            else:
                begin += size
        size //= 2
    return Story(story.policy, steps)


def kind_of(fault: str) -> str:
    """Return the common part of faults of one kind: their first words, without names and numbers."""
    return " ".join(word for word in fault.split()[:12] if word.isalpha())


def write(story: Story, fault: str, path: Path) -> None:
    """Write the fault, and one step per line."""
    lines = [msgspec.json.encode({"policy": story.policy, "fault": fault}).decode()]
    lines += [msgspec.json.encode(step).decode() for step in story.steps]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> Story:
    head, *lines = path.read_text().splitlines()
    return Story(msgspec.json.decode(head)["policy"], [msgspec.json.decode(line, type=Step) for line in lines])


def fault_in(path: Path) -> str:
    """Return the fault of a written story."""
    fault: str = msgspec.json.decode(path.read_text().splitlines()[0])["fault"]
    return fault


def objects_kept() -> int:
    """Count the container objects of the process."""
    gc.collect()
    return len(gc.get_objects())
