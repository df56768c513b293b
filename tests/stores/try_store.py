"""`python -m tests.stores.try_store ROOT`: try whether logs can lie on a file system or an object store.

I/O: makes a folder of its own below the root, and processes that create the same objects at once; the folder is deleted
at the end. Each check prints one line; the exit code is 1 when one fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context

from stratalog.replication.broker_root import folder_here, lock_alone, lock_shared
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import KafkaStorageError, StratalogError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import contents, started, write

PROCESSES = 4
NAMES = 100
APPENDS = 40
LARGE_BYTES = 200_000


def check_probe(root: str) -> str:
    """What a broker does when it opens the root."""
    open_store(root, create=True)
    return "a second create is refused"


def create_all(root: str, process: int) -> list[int]:
    """The names that this process created."""
    store = open_store(root)
    return [name for name in range(NAMES) if store.create(f"race/{name}", f"process {process}".encode())]


def check_race(root: str) -> str:
    """Several processes create the same objects at once: each has one winner, whose bytes it holds."""
    with get_context("spawn").Pool(PROCESSES) as pool:
        won = pool.map(partial(create_all, root), range(PROCESSES), chunksize=1)
    store = open_store(root)
    for name in range(NAMES):
        winners = [process for process in range(PROCESSES) if name in won[process]]
        if len(winners) != 1:
            raise KafkaStorageError(f"processes {winners} created race/{name}, expected one")
        found, expected = store.get(f"race/{name}"), f"process {winners[0]}".encode()
        if found != expected:
            raise KafkaStorageError(f"race/{name} holds {found!r}, expected {expected!r}")
    return f"{NAMES} objects, {PROCESSES} processes, one winner each"


def opened(root: str, broker: str) -> PartitionLog:
    log = PartitionLog(
        DeltaLogTable(open_store(f"{root}/{broker}", create=True), "t-0", RandomIds()),
        LogConfig.from_properties({"flush.messages": 7}),
        SystemClock(),
        RandomIds(),
    )
    log.exists_or_create("topic-id")
    return log


def check_log(root: str) -> str:
    """Appends, a copy to another replica, and both opened again."""
    leader, follower = opened(root, "leader"), opened(root, "follower")
    started(leader, 0)
    values = [f"{i:04d}" for i in range(APPENDS)] + [os.urandom(LARGE_BYTES).hex()]
    write(leader, *values)
    follower.start_epoch(0, as_leader=False)
    leader.refresh()
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 0, 1 << 30)
    for broker in ("leader", "follower"):
        found = [value for _, value in contents(opened(root, broker))]
        if found != values:
            raise KafkaStorageError(f"{broker} holds {len(found)} records after it was opened again, not {len(values)}")
    return f"{len(values)} appends, copied, and read again by other instances"


def check_registers(root: str) -> str:
    """Small values that are replaced often."""
    writer, reader = open_store(root), open_store(root)
    for number in range(APPENDS):
        writer.put_register("register", b"%d" % number * 100)
        if reader.get_register("register") != b"%d" % number * 100:
            raise KafkaStorageError(f"value {number} of a register is not read back")
    return f"{APPENDS} values replaced and read back"


def is_locked_elsewhere(root: str) -> bool:
    try:
        lock_alone(folder_here(open_store(root)), "held").close()
    except KafkaStorageError:
        return True
    return False


def check_lock(root: str) -> str:
    """A lock of this process is seen by another one, and ends when it is closed."""
    held = lock_shared(folder_here(open_store(root)), lambda: None)
    with get_context("spawn").Pool(1) as pool:
        while_held = pool.apply(is_locked_elsewhere, (root,))
        held.close()
        afterwards = pool.apply(is_locked_elsewhere, (root,))
    if (while_held, afterwards) != (True, False):
        raise KafkaStorageError(f"refused while held: {while_held}, after: {afterwards}, expected True and False")
    return "held against another process"


def check_deletion(root: str) -> str:
    """Deleted replicas leave no directory."""
    store = open_store(root)
    for name in store.directories():
        store.delete_tree(name, RandomIds().new_id())
    if store.directories():
        raise KafkaStorageError(f"{store.directories()} are left")
    return "no directory is left"


CHECKS: dict[str, Callable[[str], str]] = {
    "probe": check_probe,
    "race of creates": check_race,
    "log": check_log,
    "registers": check_registers,
    "lock": check_lock,
    "deletion": check_deletion,
}


def try_store(place: str, show: Callable[[str], None]) -> bool:
    """True when every check passes."""
    root = f"{place.rstrip('/')}/try-{RandomIds().new_id()[:8]}"
    passed = True
    for name, check in CHECKS.items():
        try:
            show(f"{name}: {check(root)}")
        except StratalogError as reason:
            passed = False
            show(f"{name}: FAILED: {reason}")
            if name == "probe":
                break
    remove(root)
    return passed


def remove(root: str) -> None:
    """What is left, and the folder, if it is one."""
    try:
        store = open_store(root)
        for meta in store.list(""):
            store.delete(meta.path)
        folder = store.file_path("")
        if folder is not None:
            os.rmdir(folder)
    except (OSError, StratalogError) as reason:
        print(f"{root} is left: {reason}", file=sys.stderr)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return 0 if try_store(sys.argv[1], print) else 1


if __name__ == "__main__":
    sys.exit(main())
