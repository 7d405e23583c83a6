"""Queue (scheduling.volcano.sh): what is filled in, and what is refused, of one queue and of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from phalanx.admission.context import DEFAULT, ROOT, AdmissionContext, QueueCatalog, parent_of
from phalanx.admission.fields import Json, PatchBuilder, annotations_of, mapping, name_of, text
from phalanx.admission.queue_state import missing_queue
from phalanx.model.text.decoding import parse_float, quoted
from phalanx.model.text.quantity import Quantity, QuantityError, read_quantity

HIERARCHY, HIERARCHY_WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
STATES = ("Open", "Closed")
_BODY = "requestBody"

Amounts = dict[str, Quantity]


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """What upstream fills in when a queue is created."""
    built = PatchBuilder(document)
    notes, spec = annotations_of(document), mapping(document.get("spec"))
    path, weights = text(notes.get(HIERARCHY)), text(notes.get(HIERARCHY_WEIGHTS))
    if path and weights and not path.startswith(ROOT):
        built.add(("metadata", "annotations", HIERARCHY), f"{ROOT}/{path}")
        built.add(("metadata", "annotations", HIERARCHY_WEIGHTS), f"1/{weights}")
    if spec.get("reclaimable") is None:
        built.add(("spec", "reclaimable"), True)
    if not spec.get("weight"):
        built.add(("spec", "weight"), 1)
    return built


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Why a queue cannot be created, or (with `old`) changed so. What an update does not touch is not looked at."""
    before = old or {}
    spec, spec_before = mapping(document.get("spec")), mapping(before.get("spec"))
    state = mapping(document.get("status")).get("state")
    of_itself: list[str] = []
    if spec != spec_before:
        of_itself += _amounts(spec)
        weight = spec.get("weight")
        if isinstance(weight, int) and not isinstance(weight, bool) and weight < 1:
            of_itself.append(f"spec.weight: Invalid value: {weight}: should be greater than or equal to 1")
    if state and state not in STATES and state != mapping(before.get("status")).get("state"):
        of_itself.append(
            f"{_BODY}.spec.state: Invalid value: {_quote(state)}: queue state must be in [{' '.join(STATES)}]"
        )
    if annotations_of(document) != annotations_of(before):
        of_itself += _hierarchy(document, context.queues or QueueCatalog())
    if of_itself:
        return [f"[{', '.join(of_itself)}]" if len(of_itself) > 1 else of_itself[0]]
    if context.queues is None or spec == spec_before:
        return []
    moved = old is None or parent_of(document) != parent_of(before)
    if moved and (refusal := _place(document, context)):
        return [refusal]
    resized = any(
        _read(spec, field) != _read(spec_before, field) for field in ("capability", "deserved", "guarantee")
    )
    if name_of(document) == ROOT:
        if old is not None and resized:
            return ["root queue's resource attributes (capability, deserved, guarantee) cannot be modified"]
        return []
    if moved or resized:
        return list(_tree(document, context.queues))[:1]
    return []


def validate_deletion(name: str, context: AdmissionContext) -> list[str]:
    """Why a queue cannot be deleted."""
    if name in (DEFAULT, ROOT):
        return [f"`{name}` queue can not be deleted"]
    if context.queues is not None:
        children = [name_of(child) for child in context.queues.children(name)]
        if children:
            named = ", ".join(children)
            return [f"queue {name} can not be deleted because it has {len(children)} child queues: {named}"]
    groups = context.unfinished_groups.get(name, 0)
    if groups:
        why = f"it has {groups} unfinished PodGroups; close it and wait for them"
        return [f"queue {name} cannot be deleted because {why}"]
    return []


# --- one queue


def _amounts(spec: Json) -> Iterator[str]:
    """guarantee <= deserved <= capability, each readable and none negative."""
    read: dict[str, Amounts] = {}
    for field, path in (
        ("capability", "capability"),
        ("deserved", "deserved"),
        ("guarantee", "guarantee.resource"),
    ):
        read[field] = {}
        for name, value in sorted(_stated(spec, field).items()):
            try:
                amount = read_quantity(value)
            except QuantityError as error:
                yield f"{_BODY}.spec.{path}.{name}: Invalid value: {_quote(value)}: {error.reason}"
                continue
            read[field][name] = amount
            if amount.nano < 0:
                yield (f'{_BODY}.spec.{path}.{name}: Invalid value: "{amount}": must be greater than or equal to 0')
    deserved, capability = read["deserved"], read["capability"]
    for name, floor in read["guarantee"].items():
        amount_deserved = deserved.get(name)
        where = f"{_BODY}.spec.deserved.{name}"
        if amount_deserved is None:
            yield f'{where}: Invalid value: "<nil>": deserved[{name}] must be >= guarantee[{name}]={floor}'
        elif amount_deserved < floor:
            yield (
                f'{where}: Invalid value: "{amount_deserved}": deserved[{name}]={amount_deserved} '
                f"must be >= guarantee[{name}]={floor}"
            )
    for name, amount in deserved.items():
        ceiling = capability.get(name)
        if ceiling is not None and amount > ceiling:
            yield (
                f'{_BODY}.spec.deserved.{name}: Invalid value: "{amount}": deserved[{name}]={amount} '
                f"must be <= capability[{name}]={ceiling}"
            )


def _hierarchy(queue: Json, queues: QueueCatalog) -> Iterator[str]:
    path = text(annotations_of(queue).get(HIERARCHY))
    weights = text(annotations_of(queue).get(HIERARCHY_WEIGHTS))
    if not path and not weights:
        return
    where = f"{_BODY}.metadata.annotations: Invalid value: "
    if path.count("/") != weights.count("/"):
        yield f'{where}"{path}": {HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}'
        return
    for word in weights.split("/"):
        weight = parse_float(word)
        if weight is None:
            yield (
                f'{where}"{weights}": {word} in the {weights} is invalid number: '
                f'strconv.ParseFloat: parsing "{word}": invalid syntax'
            )
            return
        if weight <= 0:
            yield f'{where}"{weights}": {word} in the {weights} must be larger than 0'
            return
    for other in queues.all():
        theirs = text(annotations_of(other).get(HIERARCHY))
        if name_of(other) != name_of(queue) and theirs.startswith(f"{path}/"):
            whose = f"{theirs} of queue {name_of(other)}"
            yield f'{where}"{path}": {path} is not allowed to be in the sub path of {whose}'
            return


# --- the tree


def _place(queue: Json, context: AdmissionContext) -> str:
    """Why it cannot hang where it wants to."""
    name, parent = name_of(queue), parent_of(queue)
    queues = context.queues
    assert queues is not None
    if parent == ROOT:
        return ""
    if parent == name:
        return f"queue {name} cannot use itself as parent"
    depth, above, passed = 1, parent, {name}
    while above != ROOT:
        depth += 1
        if above in passed:
            return f"queue {name} cannot have {parent} as parent: {above} is below itself"
        if depth > context.max_queue_depth:
            return f"queue {name} exceeds the maximum allowed depth of {context.max_queue_depth}"
        found = queues.get(above)
        if found is None:
            return f"failed to get parent queue {above} of queue {name}: {missing_queue(above)}"
        passed.add(above)
        above = parent_of(found)
    if queues.children(parent):
        return ""
    allocated = mapping(mapping((queues.get(parent) or {}).get("status")).get("allocated")).get("pods")
    try:
        pods = read_quantity(allocated or 0)
    except QuantityError:
        return ""
    if pods.nano > 0:
        return f"queue {parent} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
    return ""


def _tree(queue: Json, queues: QueueCatalog) -> Iterator[str]:
    name, parent = name_of(queue), parent_of(queue)
    spec = mapping(queue.get("spec"))
    if parent != ROOT:
        for resource, amount in _read(spec, "capability").items():
            above = _capability_above(queue, resource, queues)
            if above is not None and amount > above:
                yield f"queue {name} capability[{resource}]={amount} exceeds its ancestor's capability={above}"
        siblings = [child for child in queues.children(parent) if name_of(child) != name]
        yield from _sums(f"parent queue {parent}", queues.get(parent) or {}, [*siblings, queue])
    children = [child for child in queues.children(name) if name_of(child) != name]
    if not children:
        return
    for resource, amount in _read(spec, "capability").items():
        below = _most_below(children, resource, queues)
        if amount < below:
            most = f"its descendants' max capability={below}"
            yield f"queue {name} capability[{resource}]={amount} is smaller than {most}"
    yield from _sums(f"queue {name}", queue, children)


def _sums(who: str, parent: Json, children: Iterable[Json]) -> Iterator[str]:
    """What children have for sure, or deserve, together is at most what the parent has."""
    family = list(children)
    for field in ("guarantee", "deserved"):
        limit = _read(mapping(parent.get("spec")), field)
        total: dict[str, Quantity] = {}
        for child in family:
            for resource, amount in _read(mapping(child.get("spec")), field).items():
                total[resource] = Quantity(total.get(resource, Quantity(0)).nano + amount.nano, amount.style)
        if any(amount.nano > limit.get(resource, Quantity(0)).nano for resource, amount in total.items()):
            yield (
                f"{who} validation failed: sum of children's {field} ({_shown(total)}) exceeds "
                f"parent's {field} limit ({_shown(limit)})"
            )


def _capability_above(queue: Json, resource: str, queues: QueueCatalog) -> Quantity | None:
    """The capability of the nearest ancestor that has one."""
    above, passed = parent_of(queue), {name_of(queue)}
    while above != ROOT and above not in passed:
        passed.add(above)
        found = queues.get(above)
        if found is None:
            return None
        amount = _read(mapping(found.get("spec")), "capability").get(resource)
        if amount is not None and amount.nano > 0:
            return amount
        above = parent_of(found)
    return None


def _most_below(children: Iterable[Json], resource: str, queues: QueueCatalog) -> Quantity:
    """The largest capability in their subtrees, not looking below one that has it."""
    most, passed, rest = Quantity(0), set[str](), list(children)
    while rest:
        queue = rest.pop()
        if name_of(queue) in passed:
            continue
        passed.add(name_of(queue))
        own = _read(mapping(queue.get("spec")), "capability").get(resource)
        if own is not None and own.nano > 0:
            most = max(most, own)
        else:
            rest += queues.children(name_of(queue))
    return most


def _read(spec: Json, field: str) -> Amounts:
    """What can be read of a queue's amounts."""
    read: Amounts = {}
    for name, value in sorted(_stated(spec, field).items()):
        try:
            read[name] = read_quantity(value)
        except QuantityError:
            continue
    return read


def _stated(spec: Json, field: str) -> dict[str, Any]:
    found = mapping(spec.get(field))
    return mapping(found.get("resource")) if field == "guarantee" else found


def _shown(amounts: Amounts) -> str:
    """As upstream prints resources: thousandths of CPUs and bytes first, then the others."""
    zero = Quantity(0)
    shown = [
        f"cpu {amounts.get('cpu', zero).nano / 10**6:.2f}",
        f"memory {amounts.get('memory', zero).nano / 10**9:.2f}",
    ]
    shown += [
        f"{name} {amount.nano / 10**6:.2f}" for name, amount in amounts.items() if name not in ("cpu", "memory")
    ]
    return ", ".join(shown)


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) and len(value) <= 80 else quoted(value)
