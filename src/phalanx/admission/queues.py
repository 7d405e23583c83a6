"""Admission rules for Queue (scheduling.volcano.sh): defaults and refusals, for one queue and for the tree."""

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
    """Return Volcano's defaults of a new queue."""
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
    """Return the reasons to deny a queue's creation, or (with `old`) its change. Unchanged parts are not
    checked."""
    before = old or {}
    spec, spec_before = mapping(document.get("spec")), mapping(before.get("spec"))
    state = mapping(document.get("status")).get("state")
    own_refusals: list[str] = []
    if spec != spec_before:
        own_refusals += _amounts(spec)
        weight = spec.get("weight")
        if isinstance(weight, int) and not isinstance(weight, bool) and weight < 1:
            own_refusals.append(f"spec.weight: Invalid value: {weight}: should be greater than or equal to 1")
    if state and state not in STATES and state != mapping(before.get("status")).get("state"):
        own_refusals.append(
            f"{_BODY}.spec.state: Invalid value: {_quote(state)}: queue state must be in [{' '.join(STATES)}]"
        )
    if annotations_of(document) != annotations_of(before):
        own_refusals += _hierarchy(document, context.queues or QueueCatalog())
    if own_refusals:
        return [f"[{', '.join(own_refusals)}]" if len(own_refusals) > 1 else own_refusals[0]]
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
    """Return the reasons to deny the deletion of a queue."""
    if name in (DEFAULT, ROOT):
        return [f"`{name}` queue can not be deleted"]
    if context.queues is not None:
        children = [name_of(child) for child in context.queues.children(name)]
        if children:
            named = ", ".join(children)
            return [f"queue {name} can not be deleted because it has {len(children)} child queues: {named}"]
    groups = context.unfinished_groups.get(name, 0)
    if groups:
        reason = f"it has {groups} unfinished PodGroups; close it and wait for them"
        return [f"queue {name} cannot be deleted because {reason}"]
    return []


# --- one queue


def _amounts(spec: Json) -> Iterator[str]:
    """Yield faults of a queue's resource quantities: each must be readable and >= 0, and guarantee <= deserved <=
    capability."""
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
    for name, guarantee in read["guarantee"].items():
        amount_deserved = deserved.get(name)
        path = f"{_BODY}.spec.deserved.{name}"
        if amount_deserved is None:
            yield f'{path}: Invalid value: "<nil>": deserved[{name}] must be >= guarantee[{name}]={guarantee}'
        elif amount_deserved < guarantee:
            yield (
                f'{path}: Invalid value: "{amount_deserved}": deserved[{name}]={amount_deserved} '
                f"must be >= guarantee[{name}]={guarantee}"
            )
    for name, amount in deserved.items():
        limit = capability.get(name)
        if limit is not None and amount > limit:
            yield (
                f'{_BODY}.spec.deserved.{name}: Invalid value: "{amount}": deserved[{name}]={amount} '
                f"must be <= capability[{name}]={limit}"
            )


def _hierarchy(queue: Json, queues: QueueCatalog) -> Iterator[str]:
    path = text(annotations_of(queue).get(HIERARCHY))
    weights = text(annotations_of(queue).get(HIERARCHY_WEIGHTS))
    if not path and not weights:
        return
    place = f"{_BODY}.metadata.annotations: Invalid value: "
    if path.count("/") != weights.count("/"):
        yield f'{place}"{path}": {HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}'
        return
    for word in weights.split("/"):
        weight = parse_float(word)
        if weight is None:
            yield (
                f'{place}"{weights}": {word} in the {weights} is invalid number: '
                f'strconv.ParseFloat: parsing "{word}": invalid syntax'
            )
            return
        if weight <= 0:
            yield f'{place}"{weights}": {word} in the {weights} must be larger than 0'
            return
    for other_queue in queues.all():
        other_path = text(annotations_of(other_queue).get(HIERARCHY))
        if name_of(other_queue) != name_of(queue) and other_path.startswith(f"{path}/"):
            owner = f"{other_path} of queue {name_of(other_queue)}"
            yield f'{place}"{path}": {path} is not allowed to be in the sub path of {owner}'
            return


# --- the tree


def _place(queue: Json, context: AdmissionContext) -> str:
    """Return the reason why a queue cannot have its parent queue, "" if it can."""
    name, parent = name_of(queue), parent_of(queue)
    queues = context.queues
    assert queues is not None
    if parent == ROOT:
        return ""
    if parent == name:
        return f"queue {name} cannot use itself as parent"
    depth, above, visited = 1, parent, {name}
    while above != ROOT:
        depth += 1
        if above in visited:
            return f"queue {name} cannot have {parent} as parent: {above} is below itself"
        if depth > context.max_queue_depth:
            return f"queue {name} exceeds the maximum allowed depth of {context.max_queue_depth}"
        parent_queue = queues.get(above)
        if parent_queue is None:
            return f"failed to get parent queue {above} of queue {name}: {missing_queue(above)}"
        visited.add(above)
        above = parent_of(parent_queue)
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
        largest_below = _largest_capability_below(children, resource, queues)
        if amount < largest_below:
            reason = f"its descendants' max capability={largest_below}"
            yield f"queue {name} capability[{resource}]={amount} is smaller than {reason}"
    yield from _sums(f"queue {name}", queue, children)


def _sums(subject: str, parent: Json, children: Iterable[Json]) -> Iterator[str]:
    """Yield a refusal if the sum of the child queues' guarantee or deserved amounts exceeds the parent's."""
    siblings = list(children)
    for field in ("guarantee", "deserved"):
        limit = _read(mapping(parent.get("spec")), field)
        total: dict[str, Quantity] = {}
        for child in siblings:
            for resource, amount in _read(mapping(child.get("spec")), field).items():
                total[resource] = Quantity(total.get(resource, Quantity(0)).nano + amount.nano, amount.style)
        if any(amount.nano > limit.get(resource, Quantity(0)).nano for resource, amount in total.items()):
            yield (
                f"{subject} validation failed: sum of children's {field} ({_shown(total)}) exceeds "
                f"parent's {field} limit ({_shown(limit)})"
            )


def _capability_above(queue: Json, resource: str, queues: QueueCatalog) -> Quantity | None:
    """Return the capability for a resource of the queue's nearest ancestor that has one."""
    above, visited = parent_of(queue), {name_of(queue)}
    while above != ROOT and above not in visited:
        visited.add(above)
        ancestor = queues.get(above)
        if ancestor is None:
            return None
        amount = _read(mapping(ancestor.get("spec")), "capability").get(resource)
        if amount is not None and amount.nano > 0:
            return amount
        above = parent_of(ancestor)
    return None


def _largest_capability_below(children: Iterable[Json], resource: str, queues: QueueCatalog) -> Quantity:
    """Return the largest capability for a resource in the child queues' subtrees; a queue with a capability hides
    those below it."""
    largest, visited, remaining = Quantity(0), set[str](), list(children)
    while remaining:
        queue = remaining.pop()
        if name_of(queue) in visited:
            continue
        visited.add(name_of(queue))
        own = _read(mapping(queue.get("spec")), "capability").get(resource)
        if own is not None and own.nano > 0:
            largest = max(largest, own)
        else:
            remaining += queues.children(name_of(queue))
    return largest


def _read(spec: Json, field: str) -> Amounts:
    """Return the readable quantities in a resource field of a queue's spec."""
    read: Amounts = {}
    for name, value in sorted(_stated(spec, field).items()):
        try:
            read[name] = read_quantity(value)
        except QuantityError:
            continue
    return read


def _stated(spec: Json, field: str) -> dict[str, Any]:
    stated = mapping(spec.get(field))
    return mapping(stated.get("resource")) if field == "guarantee" else stated


def _shown(amounts: Amounts) -> str:
    """Format resource amounts as Volcano prints them: thousandths of CPUs and bytes first, then other resources."""
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
