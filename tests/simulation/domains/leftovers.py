"""What is left in a storage domain at the end of a run: each object is named, or it is an orphan.

Kills, uploads that were given up and arrive late, and the second requests of hedged ones leave data files that no
commit names, and commits that are no part of a log. Clean-up finds them when their grace is over: here, nine days
later, it is the product's own.
"""

from __future__ import annotations

from collections.abc import Collection

from stratalog.replication.metadata.log import open_metadata
from stratalog.storage.errors import CorruptMessageError, ObjectNotFoundError, UnknownTopicOrPartitionError
from stratalog.storage.files.damage import DAMAGE_PATH
from stratalog.storage.log.partition_log import PartitionLog
from tests.simulation.cluster import METADATA_ROOT, SimCluster
from tests.simulation.invariants import Violation
from tests.simulation.stores import SimDomain, SimLogTable
from tests.storage.leftovers import KEEPS_ALL, LATER_MS, clean_later, named_by
from tests.storage.memory_table import MemoryFiles


def check_nothing_is_orphaned(sim: SimCluster) -> None:
    """After a run whose actors have ended. Raises Violation `NothingOrphaned`, `MetadataLost`."""
    metadata = open_metadata(sim, METADATA_ROOT, sim.clock, sim.ids)
    try:
        metadata.refresh()
    except ObjectNotFoundError as lost:
        raise Violation("MetadataLost", str(lost)) from lost
    under_way = {deletion.topic_id for deletion in metadata.image.deletions.values()}
    sim.scheduler.now_ms += LATER_MS  # also for the clock by which the store dates its objects
    for domain in sim.domains.values():
        _check_domain(sim, domain, under_way)


def _check_domain(sim: SimCluster, domain: SimDomain, under_way: Collection[str]) -> None:
    """`under_way`: the ids of topics whose deletion has not ended."""
    topic_ids = set(domain.topic_ids())
    for table, files in sorted(domain.tables.items()):
        topic_id = table.partition("/")[0].rpartition(".")[2]
        if topic_id in under_way or topic_id not in topic_ids:
            continue  # a request that arrives after a topic's deletion leaves objects that nobody looks for
        log = PartitionLog(SimLogTable(domain, table, sim.ids), KEEPS_ALL, sim.clock, sim.ids)
        try:
            log.refresh()
            clean_later(log, sim.scheduler.store_ms() - LATER_MS)
            log.refresh()
        except (CorruptMessageError, UnknownTopicOrPartitionError):
            continue  # another invariant's
        named, versions = named_by(log), range(log.version + 1)
        if orphans := orphans_of(files, named, versions):
            raise Violation("NothingOrphaned", f"{table}: nothing names {', '.join(orphans)}")


def orphans_of(files: MemoryFiles, named: Collection[str], versions: range) -> list[str]:
    """The objects of a table that nothing names. `versions`: those of the log, of which clean-up may have deleted the
    older ones; a commit stands behind its predecessor, or is the oldest one."""
    paths = [path for path in (*files.data_files, *files.objects) if path not in named and path != DAMAGE_PATH]
    row = versions[-1] if versions else -1
    while row - 1 in files.commits:
        row -= 1
    beside = [version for version in files.commits if version < row or version not in versions]
    beside += [version for version in files.checkpoints if version not in versions]
    return [*sorted(paths), *(f"_delta_log/{version}" for version in sorted(beside))]
