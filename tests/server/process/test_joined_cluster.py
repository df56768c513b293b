"""How brokers find, make and lock their cluster: locks, the cluster's id, settings that clients need."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import IO

import pytest

from stratalog.replication.broker_root import LOCK_FILE, META_PROPERTIES, folder_here, lock_alone, lock_shared
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.stores import DeltaStores
from stratalog.server.process.joined_cluster import join_cluster
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import InconsistentClusterIdError, InvalidRequestError, KafkaStorageError
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.opened import open_store

CONFIG = BrokerConfig()


def join(folder: Path, broker_id: int, config: BrokerConfig = CONFIG):
    return join_cluster(str(folder / "metadata"), {broker_id: str(folder / f"broker-{broker_id}")}, config)


def test_the_first_broker_makes_the_cluster_and_the_others_join(tmp_path: Path) -> None:
    joined = [join(tmp_path, broker_id) for broker_id in (1, 2, 3)]
    assert len({each.cluster_id for each in joined}) == 1
    for broker_id in (1, 2, 3):
        assert (
            f"cluster.id={joined[0].cluster_id}\n" in (tmp_path / f"broker-{broker_id}" / META_PROPERTIES).read_text()
        )
    for each in joined:
        each.close()


def test_the_settings_of_the_broker_that_came_up_last_count_for_clients(tmp_path: Path) -> None:
    for broker_id, partitions in ((1, 3), (2, 6)):
        join(tmp_path, broker_id, BrokerConfig(num_partitions=partitions)).close()
    metadata = open_metadata(DeltaStores(RandomIds()), str(tmp_path / "metadata"), SystemClock(), RandomIds())
    metadata.refresh()
    assert metadata.image.cluster_config("num.partitions", "") == "6"


def test_a_root_of_another_cluster_or_broker_is_refused(tmp_path: Path) -> None:
    join(tmp_path / "a", 1).close()
    join(tmp_path / "b", 1).close()
    root = str(tmp_path / "a" / "broker-1")
    with pytest.raises(InconsistentClusterIdError, match="belongs to cluster"):
        join_cluster(str(tmp_path / "b" / "metadata"), {1: root}, CONFIG)
    with pytest.raises(InvalidRequestError, match="belongs to broker 1, this is broker 2"):
        join_cluster(str(tmp_path / "a" / "metadata"), {2: root}, CONFIG)


def test_a_known_root_without_its_metadata_makes_no_second_cluster(tmp_path: Path) -> None:
    join(tmp_path, 1).close()
    elsewhere = tmp_path / "not-mounted"
    for make in (lambda: None, elsewhere.mkdir):
        make()
        with pytest.raises(InconsistentClusterIdError, match="is it mounted"):
            join_cluster(str(elsewhere), {1: str(tmp_path / "broker-1")}, CONFIG)
    assert list(elsewhere.iterdir()) == []


def test_the_metadata_log_is_recovered_only_while_no_other_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered: list[str] = []
    monkeypatch.setattr(DeltaLogTable, "recover_tail", lambda table: recovered.append(table.name) or 0)
    first = join(tmp_path, 1)
    second = join(tmp_path, 2)
    assert len(recovered) == 1
    first.close()
    third = join(tmp_path, 3)
    assert len(recovered) == 1
    second.close()
    third.close()
    join(tmp_path, 1).close()
    assert len(recovered) == 2


def test_a_directory_is_held_by_one_and_free_after_it(tmp_path: Path) -> None:
    held = lock_alone(tmp_path, "taken")
    with pytest.raises(KafkaStorageError, match=r"^taken$"):
        lock_alone(tmp_path, "taken")
    held.close()
    lock_alone(tmp_path, "taken").close()


def test_a_shared_lock_refuses_an_exclusive_one(tmp_path: Path) -> None:
    firsts: list[int] = []
    shared = [lock_shared(tmp_path, lambda: firsts.append(1)) for _ in range(3)]
    assert firsts == [1]
    with pytest.raises(KafkaStorageError):
        lock_alone(tmp_path, "taken")
    for each in shared:
        each.close()
    lock_alone(tmp_path, "taken").close()


def test_a_failed_start_releases_the_lock(tmp_path: Path) -> None:
    def fail() -> None:
        raise KafkaStorageError("broken")

    with pytest.raises(KafkaStorageError, match="broken"):
        lock_shared(tmp_path, fail)
    lock_alone(tmp_path, "taken").close()


def test_a_place_that_takes_no_lock_file_is_named(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(KafkaStorageError, match=f"^{tmp_path}: cannot be used for a cluster"):
        lock_alone(tmp_path, "taken")


def test_an_object_store_s_lock_is_in_this_machine_s_temporary_folder(tmp_path: Path) -> None:
    assert folder_here(open_store(str(tmp_path))) == tmp_path
    assert folder_here(MemoryStore()).parent.name.startswith("stratalog-")


@pytest.mark.parametrize("left", [b"", bytes(700), b'{"commitInfo":{"torn'])
def test_a_commit_that_a_power_cut_tore_is_dropped_when_the_first_broker_returns(tmp_path: Path, left: bytes) -> None:
    before = join(tmp_path, 1)
    before.close()
    log = tmp_path / "metadata" / "__cluster_metadata-0" / "_delta_log"
    next_version = 1 + max(int(path.stem) for path in log.glob("*.json"))
    (log / f"{next_version:020}.json").write_bytes(left)
    again = join(tmp_path, 1)
    again.close()
    assert again.cluster_id == before.cluster_id


def test_the_lock_file_can_be_read_and_written(tmp_path: Path) -> None:
    """NFSv4 keeps flock(2) by byte-range locks of the whole file: a shared one needs a descriptor that can read, an
    exclusive one a descriptor that can write."""
    for lock in (lock_shared(tmp_path, lambda: None), lock_alone(tmp_path / "other", "taken")):
        flags = fcntl.fcntl(lock.fileno(), fcntl.F_GETFL)
        assert flags & os.O_ACCMODE == os.O_RDWR
        lock.close()


def test_a_lock_is_taken_where_a_shared_one_needs_a_readable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(lock: IO[str], how: int) -> None:
        """As `nfs4_proc_setlk`: EBADF unless the file is open for what the lock allows."""
        mode = fcntl.fcntl(lock.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
        if mode == (os.O_WRONLY if how & fcntl.LOCK_SH else os.O_RDONLY):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock_shared(tmp_path, lambda: None).close()
    lock_alone(tmp_path, "taken").close()


def test_a_lock_leaves_what_the_file_holds(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("note of an administrator")
    lock_alone(tmp_path, "taken").close()
    assert (tmp_path / LOCK_FILE).read_text() == "note of an administrator"
