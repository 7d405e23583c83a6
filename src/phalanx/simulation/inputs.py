"""Input files of a simulation, read and validated before it runs."""

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

_BUILT_IN, _CAPTURED = "built-in", "captured"


class InputFile(msgspec.Struct, frozen=True):
    """An input file; `role` is its use, `name` has no folder, so reports do not depend on the machine."""

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
    """Read all inputs. Without a cluster file, `processors` is the size of a machine that is one pool.

    Without a policy file, the policy is that of the capture, else the built-in one.

    Raises InputError and PolicyError."""
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
        raise InputError(f"{cluster.name}: no pods in the cluster; give at least one --workload FILE")
    workloads: list[Workload] = []
    for path in workload_files:
        open_file = partial(_read_sibling, text_of, path)
        workloads += read_workloads(text_of("workload", path), path, open_file)
    policies: list[NamedPolicy] = []
    for path in policy_files:
        text = text_of("policy", path)
        if not text.strip():
            raise PolicyError(f"{path}: empty file; write actions and tiers, or omit --policy")
        load_policy(text, path)
        policies.append(NamedPolicy(_name(path, [policy.name for policy in policies]), text))
    captured = cluster.capture.policy if cluster.capture is not None else ""
    default = NamedPolicy(_CAPTURED, captured) if captured else NamedPolicy(_BUILT_IN, DEFAULT_POLICY)
    chosen = tuple(policies) or (default,)
    if len(set(seeds)) != len(seeds):
        raise InputError("--seed: a seed is named twice; give each seed once")
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
    """Return the bytes of a file and its text, decompressed if the name ends with .gz. Raises InputError."""
    try:
        raw = Path(path).read_bytes()
        return raw, (gzip.decompress(raw) if path.endswith(".gz") else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the file: {getattr(error, 'strerror', None) or error}") from error


def _read_sibling(text_of: Callable[[str, str], str], path: str, name: str) -> str:
    """Return the text of a file in the folder of `path`."""
    return text_of("trace", str(Path(path).parent / name))


def _name(path: str, used_names: Sequence[str]) -> str:
    """Return the name of a policy in tables: the file name without suffix, numbered if it is not unique."""
    name, number = Path(path).stem, 1
    while name in used_names:
        number += 1
        name = f"{Path(path).stem}-{number}"
    return name
