"""GET of lists: selection of objects, pages of one revision, and the semantics of resourceVersion.

https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from phalanx.model.matching import all_hold
from phalanx.model.text.decoding import decode_json, parse_whole
from phalanx_local.errors import (
    StatusError,
    bad_request,
    expired,
    forbidden_field,
    invalid_options,
    revision_too_large,
    unsupported_value,
)
from phalanx_local.objects import Json, encode
from phalanx_local.registry.resources import Version
from phalanx_local.registry.selectors import (
    FieldSelector,
    Requirements,
    parse_field_selector,
    requested_labels,
)
from phalanx_local.storage.records import Key, Record, view_body
from phalanx_local.storage.store import Collection, Store

_METADATA_FIELDS = frozenset(("metadata.name", "metadata.namespace"))
_CACHED_SNAPSHOTS = 8
_NO_FIELDS = FieldSelector(())


class Selection(NamedTuple):
    """Namespace, label and field selectors of a list or a watch; an empty namespace means all namespaces."""

    namespace: str
    labels: Requirements
    fields: FieldSelector

    def matches(self, record: Record) -> bool:
        if self.namespace and record.namespace != self.namespace:
            return False
        if self.labels and not all_hold(self.labels, record.labels):
            return False
        return not self.fields or self.fields.matches(record.fields)

    @property
    def narrow(self) -> bool:
        return bool(self.labels) or bool(self.fields)


class ListQuery(NamedTuple):
    """Parsed query parameters of a list request."""

    selection: Selection
    limit: int
    continuation: str
    revision: str
    match: str


class ServedPage(NamedTuple):
    """Page of a list: records in key order, and the continue token (empty on the last page)."""

    records: list[Record]
    revision: int
    continuation: str
    remaining: int | None


def parse_selection(version: Version, namespace: str, query: Mapping[str, str]) -> Selection:
    """Parse the label and field selectors. Raise 400 for a malformed selector or a field that the kind does not
    support."""
    labels: Requirements = ()
    fields = _NO_FIELDS
    source = query.get("labelSelector")
    if source:
        labels = requested_labels(source)
    source = query.get("fieldSelector")
    if source:
        aliases = version.field_aliases or {}
        known = version.type.strategy.field_labels | _METADATA_FIELDS | aliases.keys()
        fields = parse_field_selector(source, known)
        if aliases:
            fields = FieldSelector(
                tuple(term._replace(field=aliases.get(term.field, term.field)) for term in fields.terms)
            )
    return Selection(namespace, labels, fields)


def parse_list_query(version: Version, namespace: str, query: Mapping[str, str]) -> ListQuery:
    """Parse the query parameters of a list. Raise 400 if they contradict each other."""
    revision = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    continuation = query.get("continue", "")
    if match:
        _check_match(revision, match, continuation)
    if revision and parse_whole(revision, 0) is None:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{revision}": '
            f'strconv.ParseUint: parsing "{revision}": invalid syntax'
        )
    if continuation and revision not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    limit = _integer(query, "limit")
    if revision == "0" and not match:
        limit = 0  # upstream serves such lists from its cache, without pages
    return ListQuery(parse_selection(version, namespace, query), limit, continuation, revision, match)


def _check_match(revision: str, match: str, continuation: str) -> None:
    field = "resourceVersionMatch"
    if match not in ("Exact", "NotOlderThan"):
        cause = unsupported_value(field, match, ("Exact", "NotOlderThan", ""))
    elif not revision:
        cause = forbidden_field(field, f"{field} is forbidden unless resourceVersion is provided")
    elif continuation:
        cause = forbidden_field(field, f"{field} is forbidden when continue is provided")
    elif match == "Exact" and revision == "0":
        cause = forbidden_field(field, f'{field} "exact" is forbidden for resourceVersion "0"')
    else:
        return
    raise invalid_options("ListOptions", cause)


def _integer(query: Mapping[str, str], name: str) -> int:
    value = query.get(name, "")
    if not value:
        return 0
    number = parse_whole(value)
    if number is None:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    return max(0, number)


class _Token(msgspec.Struct):
    """Continue token: the revision of the list and the last returned key."""

    v: str
    rv: int
    ns: str
    name: str


class Lister:
    """Server of list requests. Later pages show the revision of the first page; a few snapshots are cached for
    them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, str, int], list[Record]] = OrderedDict()

    def page(self, collection: Collection, query: ListQuery) -> ServedPage:
        """Return one page of a list. Raise 410 for a token or a revision outside the history, 504 for a future
        revision."""
        store, selection = self._store, query.selection
        after: Key | None = None
        revision = store.revision
        if query.continuation:
            token = self._token(query.continuation)
            after, revision = (token.ns, token.name), token.rv
            if revision < 0:
                revision = store.revision
        elif query.revision:
            asked = int(query.revision)
            if asked > store.revision:
                raise revision_too_large(asked, store.revision)
            if query.match == "Exact":
                revision = asked
        if revision == store.revision and after is None and not query.limit:
            return ServedPage(self._select(collection, selection), revision, "", None)
        try:
            records = self._snapshot(collection, selection.namespace, revision)
        except StatusError:
            if after is None:
                raise expired(f"The resourceVersion for the provided list is too old: {revision}") from None
            raise self._expired_token(after) from None
        return self._cut(records, selection, after, query.limit, revision)

    def _select(self, collection: Collection, selection: Selection) -> list[Record]:
        records = collection.records
        if not selection.narrow:
            return [records[key] for key in collection.keys(selection.namespace)]
        name = selection.fields.exact("metadata.name")
        if name is not None and selection.namespace:
            record = records.get((selection.namespace, name))
            return [record] if record is not None and selection.matches(record) else []
        candidates = [records[key] for key in collection.keys(selection.namespace)]
        return [record for record in candidates if selection.matches(record)]

    def _snapshot(self, collection: Collection, namespace: str, revision: int) -> list[Record]:
        key = (collection.storage, namespace, revision)
        snapshot = self._snapshots.get(key)
        if snapshot is not None and revision >= collection.compacted:
            self._snapshots.move_to_end(key)
            return snapshot
        state = collection.at(revision, self._store.revision)
        if state is collection.records:
            snapshot = [state[item] for item in collection.keys(namespace)]
        else:
            snapshot = [state[item] for item in sorted(state) if not namespace or item[0] == namespace]
        self._snapshots[key] = snapshot
        if len(self._snapshots) > _CACHED_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return snapshot

    def _cut(
        self, records: list[Record], selection: Selection, after: Key | None, limit: int, revision: int
    ) -> ServedPage:
        start = 0 if after is None else _first_after(records, after)
        chosen: list[Record] = []
        for index in range(start, len(records)):
            record = records[index]
            if not selection.matches(record):
                continue
            if limit and len(chosen) == limit:
                last = chosen[-1]
                token = encode_token(revision, last.key)
                remaining = None if selection.narrow else len(records) - index
                return ServedPage(chosen, revision, token, remaining)
            chosen.append(record)
        return ServedPage(chosen, revision, "", None)

    def _token(self, source: str) -> _Token:
        try:
            padded = source + "=" * (-len(source) % 4)
            token = decode_json(base64.urlsafe_b64decode(padded), _Token)
        except (ValueError, msgspec.MsgspecError):
            raise bad_request("invalid continue token: continue key is not valid: the token is malformed") from None
        if token.rv > self._store.revision:
            raise self._expired_token((token.ns, token.name))
        return token

    def _expired_token(self, after: Key) -> StatusError:
        """Return the 410 for an expired continue token, with a new token that continues at the current revision."""
        text = (
            "The provided continue parameter is too old to display a consistent list result. You can start "
            "a new list without the continue parameter, or use the continue token in this response to "
            "retrieve the remainder of the results. Continuing with the provided token results in an "
            "inconsistent list - objects that were created, modified, or deleted between the time the first "
            "chunk was returned and now may show up in the list."
        )
        error = expired(text)
        error.list_meta = {"continue": encode_token(-1, after)}
        return error


def encode_token(revision: int, key: Key) -> str:
    """Encode a continue token; revision -1 continues at the current revision."""
    raw = encode({"v": "meta.k8s.io/v1", "rv": revision, "ns": key[0], "name": key[1]})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _first_after(records: list[Record], after: Key) -> int:
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle].key <= after:
            low = middle + 1
        else:
            high = middle
    return low


def list_metadata(page: ServedPage, version: Version | None = None) -> Json:
    """Return the ListMeta of a page; lists of custom resources include an empty `continue`."""
    meta: Json = {"resourceVersion": str(page.revision)}
    if version is not None and version.type.custom:
        meta["continue"] = ""
    if page.continuation:
        meta["continue"] = page.continuation
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    return meta


def list_document(page: ServedPage, version: Version) -> bytes:
    """Return a page of a list as JSON; stored bytes are joined without decoding."""
    parts = [version.list_head, encode(list_metadata(page, version)), b',"items":[']
    if page.records:
        head = version.item_head
        joint = b"," + head
        parts.append(head)
        parts.append(joint.join([view_body(record, version) for record in page.records]))
    parts.append(b"]}\n")
    return b"".join(parts)
