"""ElasticQuota of scheduler-plugins: flat, one per namespace (docs/rules/coscheduling.md, 3.1 and 3.5)."""

from __future__ import annotations

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountReader, AccountSpec, Place
from phalanx.dialects.reader import Document
from phalanx.model.account import Account, AccountKey, Tree, limits_of


class QuotaReader(AccountReader):
    """Decodes the fields that every ElasticQuota has."""

    code = "InvalidElasticQuota"


def read_elastic_quota(resource: ServedKind, document: Document) -> AccountSpec:
    """Decode an ElasticQuota of scheduler-plugins: min is deserved, max the limit. A missing resource is 0 in min,
    and unlimited in max."""
    reader = QuotaReader(resource, document)
    ref = reader.ref
    maximum = reader.amounts(reader.spec.get("max"), "spec.max")
    minimum = reader.amounts(reader.spec.get("min"), "spec.min")
    account = Account(
        key=AccountKey(Tree.ELASTIC_QUOTA, ref.namespace),
        uid=ref.uid,
        label=f"ElasticQuota {ref.namespace}/{ref.name}",
        source=ref,
        deserved=reader.below(minimum, "spec.min", maximum, "spec.max", "MinExceedsMax"),
        capability=limits_of(maximum),
        namespaces=(ref.namespace,),
        budget=reader.budget(),
        min_run_time=reader.min_run_time(),
        eviction_rate=reader.eviction_rate(),
        self_protection=reader.self_protection(),
        max_protection=reader.max_protection(),
        created=reader.created,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    place = Place(Tree.ELASTIC_QUOTA, ref.namespace)
    return AccountSpec(ref, place, reader.rank(), (account,), "DuplicateInNamespace")
