"""Deliberate bugs in a storage domain, where a deposed leader and its successor write to one table.

The commit race and the epoch in the table are the only fence between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from stratalog.replication.leader.replica import AppendGroup, LeaderReplica
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.log.append import Appended
from tests.simulation.cluster import QUICK_UPKEEP, Setting
from tests.simulation.faults import Focus
from tests.simulation.mutations.log_mutations import no_epoch_check_on_commits, orphaned_commits_count
from tests.simulation.mutations.mutation import COMPLETE, Mutation, mix

IN_DOMAIN = Setting(in_domain=True)


def answered_before_the_commit() -> AbstractContextManager[object]:
    """A leader takes a commit for made whose outcome it does not know."""
    original = LeaderReplica._append

    def append(replica: LeaderReplica, group: AppendGroup) -> Appended | Conflict:
        try:
            return original(replica, group)
        except StoreUnavailableError:
            left = replica.log._open_append
            if left is None:
                raise
            replica.log._open_append = None
            return left.appended

    return patch.object(LeaderReplica, "_append", append)


@contextmanager
def folders_without_the_topics_id() -> Iterator[None]:
    """The table of a topic is found by its name alone."""

    def topic_folder(topic: str, _topic_id: str) -> str:
        return topic

    with (
        patch("stratalog.replication.metadata.storage_domains.topic_folder", topic_folder),
        patch("tests.simulation.invariants.topic_folder", topic_folder),
    ):
        yield


DOMAIN_MUTATIONS: Mapping[str, Mutation] = {
    "append without epoch in a domain": Mutation(
        no_epoch_check_on_commits,
        ("MonotonicLeaderEpoch", "LogMatching", "NoDuplicates", "NoDuplicateSequence"),
        mix(Focus("create", 0.2, "b", "/t-0/"), 2_000, pause_broker=3, cut_broker=3, second_process=2, restart_all=1),
        IN_DOMAIN,
    ),
    "answered before the commit": Mutation(
        answered_before_the_commit, ("AckedRecordsNotLost", "ConsistentRead"), mix(crash=1, restart_all=1), IN_DOMAIN
    ),
    "orphaned commits in a domain": Mutation(
        orphaned_commits_count,
        ("CommitsFollow", *COMPLETE, "MonotonicHighWatermark"),
        mix(Focus("create", 0.3, "b", "lake"), 4_000, pause_broker=3, cut_broker=2, crash=1, restart_all=2),
        Setting(in_domain=True, upkeep=QUICK_UPKEEP, pause_ms_max=20),
        8_000,
    ),
    "folders by name": Mutation(
        folders_without_the_topics_id,
        ("OwnTopic", "CommittedFilesStand", "Liveness", *COMPLETE),
        mix(Focus("create", 0.2, "b", "lake"), 2_000, pause_broker=2, crash=1, restart_all=2),
        Setting(in_domain=True, recreates=True),
        6_000,
    ),
}
