"""Persistence of objects to one file: an append-only log of revisions, which is compacted when it is mostly
history.

Each line is one write: `REVISION put STORAGE NAMESPACE NAME BODY` or `REVISION remove STORAGE NAMESPACE NAME`,
fields separated by tabs, the body JSON without line breaks; an empty namespace is `-`. A line is passed to the
operating system in one piece before the write is answered, so it survives the end of the process (not of the
machine). A torn last line belongs to an unanswered write and is dropped.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from phalanx.model.text.decoding import decoded, parse_whole
from phalanx_local.objects import decode
from phalanx_local.storage.records import Key, Record
from phalanx_local.storage.store import FieldsOf, Store, make_record

_HEADER: Final = b"phalanx-data-1\n"
_SLACK: Final = 20_000


class DataFileError(Exception):
    """Error for a data file that has another format, is damaged before its end, or is in use."""


class FileJournal:
    """Data file of one API server. Raises DataFileError if the file is unusable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.revision = 0
        self._entries: dict[tuple[str, Key], tuple[int, bytes, int]] = {}
        self._lines = 0
        self._store: Store | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _open_locked(path)
        try:
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _read(self) -> None:
        with open(self._descriptor, "rb", closefd=False) as file:
            data = file.read()
        if not data:
            os.write(self._descriptor, _HEADER)
            return
        if not data.startswith(_HEADER):
            raise DataFileError(f"{self.path}: not a data file of this server")
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.ftruncate(self._descriptor, end)
        offset = len(_HEADER)
        for line in data[offset:end].split(b"\n")[:-1]:
            try:
                self._read_line(line, offset)
            except (ValueError, IndexError):
                raise self._damaged(offset, "it is no record") from None
            offset += len(line) + 1

    def _damaged(self, offset: int, reason: str) -> DataFileError:
        """Return the error for a damaged line of the data file: its position, the reason, and the remedy."""
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            number = file.read(offset).count(b"\n") + 1
        return DataFileError(
            f"{self.path}: line {number} (byte {offset}) is damaged: {reason}; restore the file from a "
            f"backup, or remove the line and lose its object: sed -i {number}d {self.path}"
        )

    def _read_line(self, line: bytes, offset: int) -> None:
        revision, verb, *rest = line.split(b"\t", 5)
        number = parse_whole(revision.decode(), 0)
        if number is None:
            raise ValueError(revision)
        self.revision = max(self.revision, number)
        self._lines += 1
        if verb == b"revision":
            return
        storage, namespace, name = (part.decode() for part in rest[:3])
        key = (storage, ("" if namespace == "-" else namespace, name))
        if verb == b"put":
            self._entries[key] = (number, rest[3], offset)
        elif verb == b"remove":
            self._entries.pop(key, None)
        else:
            raise ValueError(verb)

    def restore(self, store: Store, fields: Mapping[str, FieldsOf]) -> None:
        """Move the objects of the given storages from the data file into the store."""
        for (storage, key), (revision, body, offset) in list(self._entries.items()):
            fields_of = fields.get(storage)
            if fields_of is None:
                continue
            del self._entries[(storage, key)]
            collection = store.open(storage, fields_of)
            try:
                record = make_record(collection, decoded(decode, b"{" + body), revision)
            except (msgspec.DecodeError, LookupError, TypeError, AttributeError) as error:
                subject = f"{storage} {'/'.join(filter(None, key))}, revision {revision}"
                raise self._damaged(offset, f"the object of {subject} cannot be read ({error})") from None
            store.restore(collection, record)

    def begin(self, store: Store) -> None:
        """Start to record writes in the data file; drop objects of resources that no CustomResourceDefinition
        defines any more."""
        self._store = store
        self._entries.clear()
        if self._lines > _SLACK:
            self._rewrite()

    def put(self, storage: str, record: Record) -> None:
        self._append(
            b"%d\tput\t%b\t%b\t%b\t%b\n"
            % (
                record.revision,
                storage.encode(),
                (record.namespace or "-").encode(),
                record.name.encode(),
                record.body,
            )
        )

    def remove(self, storage: str, key: Key, revision: int) -> None:
        line = b"%d\tremove\t%b\t%b\t%b\n"
        self._append(line % (revision, storage.encode(), (key[0] or "-").encode(), key[1].encode()))

    def _append(self, line: bytes) -> None:
        _write_all(self._descriptor, line)
        self._lines += 1
        if self._lines > _SLACK and self._store is not None and self._lines > 4 * self._live():
            self._rewrite()

    def _live(self) -> int:
        assert self._store is not None
        return sum(len(collection.records) for collection in self._store.collections.values())

    def _rewrite(self) -> None:
        """Replace the data file with one that contains only live objects.

        The write in progress is in the old file but not in the store; it is recorded again.
        """
        assert self._store is not None
        temporary = self.path.with_name(f".{self.path.name}.rewrite")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        last = _last_line(self._descriptor)
        old, self._descriptor, self._lines = self._descriptor, descriptor, 0
        store, self._store = self._store, None
        _write_all(descriptor, _HEADER + b"%d\trevision\n" % store.revision)
        for storage, collection in store.collections.items():
            for record in collection.records.values():
                self.put(storage, record)
        if last is not None:
            self._append(last)
        os.fsync(descriptor)
        temporary.replace(self.path)
        os.close(old)
        self._store = store

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open_locked(path: Path) -> int:
    # Without O_NONBLOCK the open of a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataFileError(f"{path}: not a regular file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DataFileError(f"{path}: another server is using this data file") from None
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _last_line(descriptor: int) -> bytes | None:
    size = os.fstat(descriptor).st_size
    step = 64 * 1024
    tail = b""
    while len(tail) < size:
        start = max(0, size - len(tail) - step)
        tail = os.pread(descriptor, size - start, start)
        cut = tail.rstrip(b"\n").rfind(b"\n")
        if cut >= 0:
            return tail[cut + 1 :]
        step *= 2
    return None
