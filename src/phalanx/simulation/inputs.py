"""The files that a simulation is made of, read and checked before anything runs."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy
from phalanx.simulation.cluster import pool, read_cluster
from phalanx.simulation.errors import InputError
from phalanx.simulation.runs import Experiment, NamedPolicy
from phalanx.simulation.spans import seconds
from phalanx.simulation.workloads.reading import read_workloads
from phalanx.simulation.workloads.workload import Workload

_BUILT_IN = "built-in"


class InputFile(msgspec.Struct, frozen=True):
    """`role` is what it is used for, `name` the file without its folder, so that reports are the same anywhere."""

    role: str
    name: str
    sha256: str


class Inputs(msgspec.Struct, frozen=True):
    experiment: Experiment
    policies: tuple[NamedPolicy, ...]
    seeds: tuple[int, ...]
    files: tuple[InputFile, ...]


def read_inputs(
    cluster_file: str | None,
    processors: int,
    workload_files: Sequence[str],
    policy_files: Sequence[str],
    seeds: Sequence[int],
    until: str | None,
    hour: str | None = None,
) -> Inputs:
    """`processors` stands for a machine that is one pool where there is no cluster file. Raises InputError,
    PolicyError."""
    files: list[InputFile] = []

    def text_of(role: str, path: str) -> str:
        raw, text = read_text(path)
        files.append(InputFile(role, Path(path).name, hashlib.sha256(raw).hexdigest()))
        return text

    if cluster_file is None:
        cluster = pool(processors, "--processors")
    else:
        cluster = read_cluster(text_of("cluster", cluster_file), cluster_file)
    if not workload_files and all(entry.kind != "Pod" for entry in cluster.entries):
        raise InputError(f"{cluster.name}: it has no pods of its own; give at least one --workload FILE")
    workloads: list[Workload] = []
    for path in workload_files:
        beside = partial(_beside, text_of, path)
        workloads += read_workloads(text_of("workload", path), path, beside)
    policies: list[NamedPolicy] = []
    for path in policy_files:
        text = text_of("policy", path)
        if not text.strip():
            raise PolicyError(f"{path}: it is empty; write actions and tiers, or leave --policy out")
        load_policy(text, path)
        policies.append(NamedPolicy(_name(path, [policy.name for policy in policies]), text))
    chosen = tuple(policies) or (NamedPolicy(_BUILT_IN, DEFAULT_POLICY),)
    if len(set(seeds)) != len(seeds):
        raise InputError("--seed: a seed is named twice; each gives the same again")
    return Inputs(
        Experiment(
            cluster,
            tuple(workloads),
            seconds(until, "--until") if until is not None else None,
            seconds(hour, "--hour") if hour is not None else None,
        ),
        chosen,
        tuple(seeds),
        tuple(files),
    )


def read_text(path: str) -> tuple[bytes, str]:
    """A file as it is, and its text; one that ends with .gz is unpacked. Raises InputError."""
    try:
        raw = Path(path).read_bytes()
        return raw, (gzip.decompress(raw) if path.endswith(".gz") else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _beside(text_of: Callable[[str, str], str], path: str, name: str) -> str:
    """A file that another one names, from the folder of that one."""
    return text_of("trace", str(Path(path).parent / name))


def _name(path: str, taken: Sequence[str]) -> str:
    """What a policy is called in tables: its file without the ending, numbered where two are called alike."""
    name, number = Path(path).stem, 1
    while name in taken:
        number += 1
        name = f"{Path(path).stem}-{number}"
    return name
