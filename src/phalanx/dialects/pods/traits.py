"""Traits of pods: everything that pods with equally written specs, labels, annotations and owners have in common.

The members of a gang and the versions of one pod mostly share their traits, so these are decoded once.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.agreement import MemberDeclaration
from phalanx.dialects.gangs.declaration import owner_names, stated_queue
from phalanx.dialects.gangs.job_owner import job_of_pod
from phalanx.dialects.gangs.naming import Precedence
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.pods.binding_marks import BINDING_ANNOTATION
from phalanx.dialects.pods.decoder import DecodedTemplate, PodDecoder
from phalanx.dialects.pods.evictability import eviction_terms
from phalanx.dialects.shared_values import SharedValues
from phalanx.dialects.workloads.pod_declarations import PodDeclarations
from phalanx.model.gang import GangOwner
from phalanx.model.pod import Pod, PodClass

# Our signed annotations, which differ from pod to pod and are read for each.
_OWN = (PLAN_ANNOTATION, BINDING_ANNOTATION)
# Gangs arrive and are bound close together; a larger memory is cleared.
_MOST = 5_000


class PodTraits(msgspec.Struct, frozen=True, gc=False):
    """Traits of pods. `common` has no name and no uid. `active` and `ended` are what a member declares before and
    after its end, None outside gangs; `queue` is the queue that a pod outside gangs states, None without one.
    `template_key` is the template of `PodObject`, `concerned` the set of enrichers that such pods concern."""

    common: Pod
    template: DecodedTemplate
    template_key: bytes
    active: MemberDeclaration | None
    ended: MemberDeclaration | None
    queue: str | None
    owners: str
    job: GangOwner | None
    faults: tuple[DecodingFault, ...]
    concerned: int


class TraitsReader:
    """Reader of the traits of pods, with a bounded memory of them."""

    def __init__(
        self,
        decoder: PodDecoder,
        declarations: PodDeclarations,
        concerned: Callable[[PodObject, PodClass], int],
    ) -> None:
        """`concerned` returns the set of enrichers that pods written like this one concern."""
        self._decoder = decoder
        self._declarations = declarations
        self._concerned = concerned
        self._known: dict[tuple[object, ...], PodTraits] = {}
        self._members = SharedValues[MemberDeclaration]()
        self._owners = SharedValues[str]()
        self._jobs = SharedValues[GangOwner | None]()

    def traits(self, pod: PodObject) -> PodTraits:
        """Return the traits of a pod, and set its `template`."""
        shared, metadata = pod.shared, pod.metadata
        if shared is None:
            return self._read(pod)
        annotations = metadata.annotations
        if PLAN_ANNOTATION in annotations or BINDING_ANNOTATION in annotations:
            noted = tuple([item for item in annotations.items() if item[0] not in _OWN])
        else:
            noted = tuple(annotations.items())
        key = (shared, metadata.namespace, tuple(metadata.labels.items()), noted, *metadata.owner_references)
        traits = self._known.get(key)
        if traits is not None:
            pod.template = traits.template_key
            return traits
        traits = self._read(pod)
        member = traits.active
        # A pod without a group name is a gang of its own, named by its uid.
        if member is None or member.declaration.naming.precedence is not Precedence.UNNAMED:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = traits
        return traits

    def _read(self, pod: PodObject) -> PodTraits:
        decoder, metadata = self._decoder, pod.metadata
        declaration, template = self._declarations.declare(pod), decoder.template(pod)
        gang, role = (declaration.name, declaration.role) if declaration is not None else ("", "")
        common = decoder.common(pod, template, gang, decoder.shared(metadata.labels), role)
        active = ended = queue = None
        if declaration is not None:
            ways = (declaration, common.priority, common.preempts, common.scheduler)
            active = self._members[MemberDeclaration(*ways, True)]
            ended = self._members[MemberDeclaration(*ways, False)]
        elif (own := stated_queue(metadata)) is not None:
            queue = own.value
        return PodTraits(
            common,
            template,
            pod.template,
            active,
            ended,
            queue,
            self._owners[owner_names(metadata)],
            self._jobs[job_of_pod(metadata)] if declaration is not None else None,
            template.strategy_faults + eviction_terms(metadata.labels, metadata.annotations).faults,
            self._concerned(pod, template.pod_class),
        )
