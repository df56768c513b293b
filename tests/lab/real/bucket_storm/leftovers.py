"""What is in a cluster's part of a bucket, object for object: each is named by something, or it is an orphan.

I/O: lists the bucket once, folds the tables in it, and has the product's own clean-up run as of a later day.

A table's object is named by its newest snapshot, by a commit that stands, or by what waits for deletion. Which other
objects there may be is in `ARCHITECTURE.md`, section 5.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from tests.storage.leftovers import KEEPS_ALL, clean_later, named_by

_LOG_FILE = re.compile(r"_delta_log/(\d{20})\.(?:json|checkpoint\.parquet)")
_POINTER = "_delta_log/_last_checkpoint"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a listing found.

    objects  in all, by what names them
    orphans  paths that nothing names
    """

    objects: Counter[str]
    orphans: tuple[str, ...]


def table_orphans(
    paths: Collection[str], first_version: int, version: int, named: Collection[str], kinds: Counter[str]
) -> list[str]:
    """The objects of one table that nothing names; the others are counted by what names them.

    paths          below the table
    first_version  the oldest commit that stands in a row with the newest, `version`
    named          files of the snapshot, what waits for deletion, the whole producer state

    >>> kinds = Counter()
    >>> log = [f"_delta_log/{n:020}.json" for n in (2, 7, 8)]
    >>> table_orphans([*log, "segment=0/a.parquet", "segment=0/b.parquet"], 7, 8, {"segment=0/a.parquet"}, kinds)
    ['_delta_log/00000000000000000002.json', 'segment=0/b.parquet']
    >>> dict(kinds)
    {'commit': 2, 'file': 1}
    """
    orphans = []
    for path in sorted(paths):
        of_log = _LOG_FILE.fullmatch(path)
        if of_log is not None and first_version <= int(of_log[1]) <= version:
            kinds["checkpoint" if path.endswith(".parquet") else "commit"] += 1
        elif path == _POINTER:
            kinds["pointer"] += 1
        elif path in named:
            kinds["file"] += 1
        else:
            orphans.append(path)
    return orphans


def first_of_row(paths: Collection[str], version: int) -> int:
    """The oldest of the commits that stand one behind the other up to `version`.

    >>> first_of_row([f"_delta_log/{n:020}.json" for n in (2, 7, 8)], 8)
    7
    """
    while f"_delta_log/{version - 1:020}.json" in paths:
        version -= 1
    return version


def log_at(store: ObjectStore, table: str) -> PartitionLog:
    """The log of a table as of now."""
    ids = RandomIds()
    log = PartitionLog(DeltaLogTable(store, table, ids), KEEPS_ALL, SystemClock(), ids)
    log.refresh()
    return log


def leftovers_of(url: str, *, cleans: Callable[[str], bool] = lambda _table: False) -> Leftovers:
    """Everything below the URL of a cluster whose brokers are stopped, and whose parts are where `Cluster.start` puts
    them: `metadata`, `domain`, `broker-1` and so on. `cleans`: the tables that are cleaned before, by name."""
    store = open_store(url, request_ms=30_000)  # this machine may be busy, and nothing is timed any more
    view = ClusterView(f"{url}/metadata")
    view.refresh()
    paths = [meta.path for meta in store.list("")]
    tables = sorted({path.partition("/_delta_log/")[0] for path in paths if "/_delta_log/" in path})
    logs = {name: log_at(store, name) for name in tables if _is_log(name)}
    for name, log in logs.items():
        if cleans(name):
            clean_later(log, SystemClock().wall_ms())
            log.refresh()
    if logs:
        paths = [meta.path for meta in store.list("")]
    kinds, orphans, rest = Counter[str](), list[str](), list[str]()
    below: dict[str, list[str]] = {name: [] for name in tables}
    for path in paths:
        table = next((name for name in tables if path.startswith(f"{name}/")), None)
        rest.append(path) if table is None else below[table].append(path.removeprefix(f"{table}/"))
    for name, found in below.items():
        version, named = _named(url, name, logs.get(name))
        first = first_of_row(found, version)
        orphans += [f"{name}/{path}" for path in table_orphans(found, first, version, named, kinds)]
    orphans += small_orphans(rest, view.image, kinds)
    return Leftovers(kinds, tuple(orphans))


def _is_log(table: str) -> bool:
    """Whether it is a partition's, or the metadata log's: not one of the tables of a past or of lags."""
    return table.rpartition("-")[2].isdecimal()


def _named(url: str, table: str, log: PartitionLog | None) -> tuple[int, set[str]]:
    if log is None:
        delta = DeltaTable(f"{url}/{table}")
        return delta.version(), {uri.partition(f"/{table}/")[2] for uri in delta.file_uris()}
    return log.version, named_by(log)


KNOWN: Sequence[tuple[str, str]] = (
    ("claim", r"domain/stratalog-domain\.json"),
    ("session", r"metadata/sessions/\d+"),
    ("identity", r"broker-\d+/meta\.properties"),
    ("mark", r"broker-\d+/(?:clean-shutdown|lost-writes|\.root-probe)"),
    ("backup", r"broker-\d+/metadata-backup/.*"),
)
_OF_BROKER = re.compile(r"broker-(\d+)/(progress|fetch)/(\d+)/.*")
EPOCHS_KEPT = 3
"""The registrations of a broker whose progress objects stay: the present one, and two before it."""


def small_orphans(paths: Sequence[str], image: ClusterImage, kinds: Counter[str]) -> list[str]:
    """The objects outside tables that nothing names: those of older registrations of a broker, requests and answers
    that nobody waits for, what a probe left."""
    orphans, epochs = [], dict[tuple[str, str], set[int]]()
    found = [(path, _OF_BROKER.fullmatch(path)) for path in paths]
    for _, of_broker in found:
        if of_broker is not None:
            epochs.setdefault((of_broker[1], of_broker[2]), set()).add(int(of_broker[3]))
    for path, of_broker in found:
        kind = next((name for name, pattern in KNOWN if re.fullmatch(pattern, path)), "")
        if of_broker is not None:
            is_known = int(of_broker[1]) in image.brokers
            kept = sorted(epochs[of_broker[1], of_broker[2]])[-EPOCHS_KEPT:]
            kind = of_broker[2] if is_known and int(of_broker[3]) in kept else ""
        if kind:
            kinds[kind] += 1
        else:
            orphans.append(path)
    return orphans
