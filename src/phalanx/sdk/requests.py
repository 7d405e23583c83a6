"""Objects of a submission from the arguments of the SDK."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

Json = dict[str, Any]

# Characters of a script that becomes an argument of the container; Linux limits an argument to 128 KiB.
_SCRIPT_LIMIT = 100_000


class PodOptions(TypedDict, total=False):
    """Options of all jobs, named like the flags of `phalanx submit`.

    `image` is the image of the containers ("": $PHALANX_IMAGE). `cpus`, `memory` and `gpus` are per pod. `resubmit`
    restarts the whole job at most so many times after an eviction. `restart` is job, pod or never: the part that is
    recreated when a pod fails.
    """

    image: str
    cpus: float | str
    memory: str
    gpus: int | str
    queue: str
    priority: str
    scheduler: str
    framework: str
    environment: Mapping[str, str]
    restart: str
    max_retry: int
    resubmit: int
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


class SubmitOptions(PodOptions, total=False):
    """Options of `submit`: `replicas` pods are a gang, unless `minimum` is lower; the others are PodOptions."""

    replicas: int
    minimum: int


def command_job(command: Sequence[str] | str, name: str, options: SubmitOptions, namespace: str = "") -> Json:
    """Return the Volcano Job that runs `command` (a text is a shell script) in each pod.

    Raises InvalidArgumentError, InvalidRequestError.
    """
    from phalanx.admission.names import subdomain_faults
    from phalanx.orders.submission.creation import amounts
    from phalanx.orders.submission.job_request import FRAMEWORKS, RESTARTS, JobRequest, build_job
    from phalanx.sdk.errors import InvalidArgumentError

    unknown = set(options) - set(SubmitOptions.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(SubmitOptions.__optional_keys__))
        first = sorted(unknown)[0]
        raise InvalidArgumentError(f"unknown argument {first!r}; expected one of {known}", field=first)
    given: object = command
    if not isinstance(given, str | list | tuple):
        raise InvalidArgumentError(
            f"invalid command of type {type(given).__name__}: must be a list of words, a text or a Path",
            field="command",
        )
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    if not words or not words[-1 if isinstance(command, str) else 0].strip():
        raise InvalidArgumentError("the command is empty", field="command")
    if any("\0" in word for word in words):
        raise InvalidArgumentError("the command contains a NUL character", field="command")
    environment = options.get("environment", {})
    if not isinstance(environment, Mapping):
        raise InvalidArgumentError(
            f"invalid environment {environment!r}: must be a dictionary", field="environment"
        )
    if not isinstance(options.get("image") or "", str):
        raise InvalidArgumentError(f"invalid image {options['image']!r}: must be a text", field="image")
    for count in ("resubmit", "max_retry"):
        number = options.get(count)
        if number is not None and (not isinstance(number, int) or number < 0):
            raise InvalidArgumentError(
                f"invalid {count} {number!r}: must be a whole number of at least 0", field=count
            )
    if faults := subdomain_faults(name):
        raise InvalidArgumentError(f"invalid name {name!r}: {faults[0]}", field="name")
    for field, known_words in (("framework", FRAMEWORKS), ("restart", RESTARTS)):
        word = options.get(field)
        if word and word not in known_words:
            raise InvalidArgumentError(
                f"unknown {field} {word!r}; expected one of {', '.join(known_words)}", field=field
            )
    replicas = options.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 1:
        raise InvalidArgumentError(
            f"invalid replicas {replicas!r}: must be a whole number of at least 1", field="replicas"
        )
    resubmit = options.get("resubmit", 0)
    retries = options.get("max_retry")
    cpus, gpus = text_of_amount(options.get("cpus")), text_of_amount(options.get("gpus"))
    request = JobRequest(
        name=name,
        image=options.get("image") or os.environ.get("PHALANX_IMAGE", ""),
        replicas=replicas,
        minimum=options.get("minimum"),
        namespace=namespace,
        queue=options.get("queue", ""),
        priority_class=options.get("priority", ""),
        scheduler_name=options.get("scheduler") or "phalanx",
        framework=options.get("framework", ""),
        resources=amounts(cpus, text_of_memory(options.get("memory")), gpus),
        environment=environment,
        command=words,
        restart=options.get("restart", ""),
        max_retry=resubmit if resubmit and retries is None else retries,
        resubmit=bool(resubmit),
    )
    document = build_job(request)
    for part in ("annotations", "labels"):
        if values := options.get(part):
            document["metadata"][part] = dict(values)  # type: ignore[call-overload]
    return document


def text_of_memory(amount: object) -> str | None:
    """Return a memory amount as text: a number is bytes. Raises InvalidArgumentError for another type."""
    from phalanx.sdk.errors import InvalidArgumentError

    if amount is None or isinstance(amount, str):
        return amount
    if isinstance(amount, int) and not isinstance(amount, bool):
        return str(amount)
    raise InvalidArgumentError(f"invalid memory {amount!r}: must be a text such as '4Gi', or bytes", field="memory")


def text_of_amount(amount: float | str | None) -> str | None:
    """Return an amount as the API writes it: 0.5 becomes 500m."""
    if amount is None or isinstance(amount, str):
        return amount
    return str(int(amount)) if amount == int(amount) else f"{round(amount * 1000)}m"


def manifest_objects(manifest: Mapping[str, Any] | str | Path | Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the objects of a manifest: a dictionary, several of them, a path of a file, or a YAML text.

    Raises InvalidArgumentError.
    """
    import json

    from phalanx.orders.errors import OrderError
    from phalanx.orders.submission.manifests import parse_manifests, read_manifests
    from phalanx.sdk.errors import InvalidArgumentError

    try:
        if isinstance(manifest, Path):
            return read_manifests(str(manifest))
        if isinstance(manifest, str):
            if "\n" not in manifest and manifest.endswith((".yaml", ".yml", ".json")):
                return read_manifests(manifest)
            return parse_manifests(manifest, "manifest")
        several = [manifest] if isinstance(manifest, Mapping) else list(manifest)
        return parse_manifests(json.dumps({"kind": "List", "items": several}), "manifest")
    except OrderError as error:
        raise InvalidArgumentError(error.message, field="manifest") from error


def script_command(file: Path) -> list[str]:
    """Return the command that runs the text of a script, which is a part of the job: its interpreter is that of its
    first line (`#!`), else python3 for .py and /bin/sh for other files.

    Raises InvalidArgumentError for a missing, large or binary file.
    """
    from phalanx.sdk.errors import InvalidArgumentError

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"cannot read the script {file}: {cause}", field="command") from error
    if len(text) > _SCRIPT_LIMIT:
        raise InvalidArgumentError(
            f"the script {file} has {len(text)} characters, at most {_SCRIPT_LIMIT} are possible; "
            "put it into the image",
            field="command",
        )
    first = text.partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else []
    return [*(words or (["python3", "-u"] if file.suffix == ".py" else ["/bin/sh"])), "-c", text]


def generated_name(prefix: str) -> str:
    """Return a name that no other job has: `prefix` and five random characters."""
    return f"{prefix}-{secrets.token_hex(3)[:5]}"
