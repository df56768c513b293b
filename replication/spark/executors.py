"""Whether Spark can run fetch sessions: how many tasks run at once, whether its executors reach the roots, and whether
two sessions of a follower are on one executor.

I/O: a Spark job, and small objects below the roots. A path such as `file:/data/broker-2` exists on every machine and is
the same folder on none, so a task is to find there what this process wrote, and this process what the task wrote.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stratalog.replication import cadence
from stratalog.replication.progress.progress import ENDED, fetch_progress_path, writer_state
from stratalog.replication.spark.worker_error import worker_error
from stratalog.replication.stores import DeltaStores, Stores
from stratalog.storage.clock import Clock, Ids, RandomIds
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = line_logger("stratalog.fetcher")

PROBE_PREFIX = ".executor-probe-"
"""Objects below a root by which driver and executors find out whether they see the same storage."""
ROUNDS_TO_MOVE = 8
"""Each such round a session stays where Spark has put it: the other executors may have no slot."""


class Answer(NamedTuple):
    """What a task found at a root: `error` is empty when it read the driver's object and wrote one of its own."""

    host: str
    root: str
    path: str
    error: str


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a Spark application that fetch sessions depend on, as text by name."""

    by_name: Mapping[str, str]

    def warnings(self, session_ms: int) -> list[str]:
        """Settings under which fetch sessions are disturbed, each with what to do.

        session_ms  length of a fetch session (`stratalog.fetch.session.ms`)
        """
        found: list[str] = []
        if self._is_on("spark.speculation"):
            found.append(
                "spark.speculation=true starts a second copy of each fetch session, which is longer than other tasks "
                "by design: set it to false for the application of a broker"
            )
        idle_s = int(self.by_name.get("spark.python.worker.idleTimeoutSeconds", "0"))
        if self._is_on("spark.python.worker.killOnIdleTimeout") and 0 < idle_s * 1_000 <= session_ms:
            found.append(
                f"spark.python.worker.idleTimeoutSeconds={idle_s} kills a fetch session, which returns nothing for "
                f"{session_ms} ms: raise it above that, or set spark.python.worker.killOnIdleTimeout=false"
            )
        return found

    @property
    def slots_to_come(self) -> int | None:
        """With dynamic allocation: the number of tasks that all executors together may run, when there is work for
        them. None without it.

        >>> SparkSettings({"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4",
        ...     "spark.dynamicAllocation.maxExecutors": "3", "spark.task.cpus": "2"}).slots_to_come
        6
        """
        if not self._is_on("spark.dynamicAllocation.enabled"):
            return None
        executors = int(self.by_name.get("spark.dynamicAllocation.maxExecutors", str((1 << 31) - 1)))
        cores = int(self.by_name.get("spark.executor.cores", "1"))
        return executors * (cores // int(self.by_name.get("spark.task.cpus", "1")))

    def _is_on(self, name: str) -> bool:
        return self.by_name.get(name, "false").lower() == "true"


def settings_of(context: SparkContext) -> SparkSettings:
    """The settings that the application was started with."""
    return SparkSettings(dict(context.getConf().getAll()))


def await_slots(context: SparkContext, wanted: int, clock: Clock) -> int:
    """The number of tasks that the registered executors run at once, by `spark.executor.cores` and `spark.task.cpus`;
    waits for executors while there are fewer than `wanted`.

    `defaultParallelism` is not that number: `spark.default.parallelism` and `spark.task.cpus` change one or the other.
    """
    to_come = settings_of(context).slots_to_come
    deadline_ms = clock.monotonic_ms() + cadence.EXECUTORS_WAIT.ms
    while True:
        slots = _slots(context) if to_come is None else to_come
        if slots >= wanted or to_come is not None or is_local(context) or clock.monotonic_ms() >= deadline_ms:
            return slots
        clock.sleep_ms(cadence.EXECUTORS_POLL.ms)


def is_local(context: SparkContext) -> bool:
    """Whether tasks run in the process of the driver's JVM."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def _slots(context: SparkContext) -> int:
    jvm_context = context._jsc.sc()
    profile = jvm_context.resourceProfileManager().defaultResourceProfile()
    return int(jvm_context.maxNumConcurrentTasks(profile))


def executor_count(context: SparkContext) -> int:
    """The number of registered executors; 0 where tasks run in the driver's process."""
    return 0 if is_local(context) else int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # one is the driver


def unreached(context: SparkContext, own_roots: Iterable[str], other_roots: Iterable[str], ids: Ids) -> str:
    """Why fetch sessions cannot run on the executors of this application; empty when they can.

    Each executor reads and writes in every root: `own_roots` are those of this process's brokers and of the metadata,
    `other_roots` those of other brokers, left out where this process does not reach them either. Starts at most one
    task for each executor. Tasks of the driver's own process need no look.
    """
    if is_local(context):
        return ""
    stores, name = DeltaStores(ids), ids.new_id()
    roots = [*dict.fromkeys(own_roots)]
    others = [root for root in dict.fromkeys(other_roots) if root not in roots]
    asked = _written(stores, [*roots, *others], name)
    missing = [root for root in roots if root not in asked]
    if missing:
        return f"this process cannot write to {missing[0]}"
    try:
        return _judge(stores, _answers(context, asked, name))
    finally:
        threading.Thread(target=_clean, args=(stores, asked, name), name="executor-probe-end", daemon=True).start()


def _written(stores: Stores, roots: Sequence[str], name: str) -> list[str]:
    """Write the driver's object to each root, in a thread of its own: those roots that have it in time."""
    done: list[str] = []

    def write(root: str) -> None:
        try:
            stores.objects(root).put(driver_path(name), name.encode())
        except StratalogError as reason:
            _LOG.info("%s is not asked about on executors: %s", root, reason)
        else:
            done.append(root)

    threads = [threading.Thread(target=write, args=(root,), name="executor-probe", daemon=True) for root in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(cadence.OTHER_ROOTS_WAIT.ms / 1000)
    return [root for root in roots if root in done]


def driver_path(name: str) -> str:
    """Path of the driver's object of a look with this name."""
    return f"{PROBE_PREFIX}{name}-driver"


def _answers(context: SparkContext, roots: Sequence[str], name: str) -> list[Answer] | str:
    """The answers of one task for each executor, or why there are none."""
    executors = max(1, executor_count(context))
    result: list[list[Answer] | str] = []

    def run() -> None:
        try:
            context.setJobGroup(name, "stratalog: do executors reach the roots?", interruptOnCancel=True)
            tasks = context.parallelize(range(executors), executors)
            asked = tuple(roots)
            found = tasks.mapPartitionsWithIndex(lambda task, _: check_roots(asked, name, task)).collect()
            result.append([Answer(*each) for each in found])
        except Exception as reason:  # noqa: BLE001 - Spark's errors have no common root
            result.append(worker_error(str(reason)))

    thread = threading.Thread(target=run, name="executor-probe-job", daemon=True)
    thread.start()
    thread.join(cadence.JOB_WAIT.ms / 1000)
    if not result:
        context.cancelJobGroup(name)
        return f"tasks that look at {', '.join(roots)} did not end within {cadence.JOB_WAIT.ms} ms"
    return result[0]


def check_roots(roots: Sequence[str], name: str, task: int) -> Iterator[tuple[str, str, str, str]]:
    """In a task of Spark: read the driver's object in each root, and write one beside it. The fields of `Answer`."""
    stores, host = DeltaStores(RandomIds()), socket.gethostname()
    for root in roots:
        path = f"{PROBE_PREFIX}{name}-task-{task}"
        yield host, root, path, _check_root(stores, root, name, path)


def _check_root(stores: Stores, root: str, name: str, path: str) -> str:
    try:
        objects = stores.objects(root)
        if objects.get_optional(driver_path(name)) != name.encode():
            return "an object that the driver wrote is not there: this is other storage of the same name"
        objects.put(path, name.encode())
    except StratalogError as reason:
        return str(reason)
    return ""


def _judge(stores: Stores, answers: list[Answer] | str) -> str:
    if isinstance(answers, str):
        return answers
    for each in answers:
        if each.error:
            return f"an executor on {each.host} does not reach {each.root}: {each.error}"
        if stores.objects(each.root).get_optional(each.path) is None:
            return f"what an executor on {each.host} wrote to {each.root} does not appear here"
    return ""


def _clean(stores: Stores, roots: Sequence[str], name: str) -> None:
    for root in roots:
        try:
            objects = stores.objects(root)
            for meta in objects.list(f"{PROBE_PREFIX}{name}-"):
                objects.delete(meta.path)
        except StratalogError as reason:
            _LOG.info("objects below %s/%s%s are left: %s", root, PROBE_PREFIX, name, reason)


def executor_place() -> str:
    """Names the executor of this Python worker, in 8 hexadecimal digits: each executor has a host, or a container, and
    a working directory of its own."""
    return hashlib.sha256(f"{socket.gethostname()} {os.getcwd()}".encode()).hexdigest()[:8]


class SessionName(NamedTuple):
    """The name of a fetch session on Spark: `<query>-<round>-<id>-<executor>`.

    >>> str(SessionName(0, 7, "5e6f", "0a1b"))
    '0-7-5e6f-0a1b'
    """

    slot: int
    number: int
    session_id: str
    place: str

    def __str__(self) -> str:
        return "-".join(map(str, self))


def is_beside_another(
    objects: ObjectStore, broker_epoch: int, fetcher_id: int, name: SessionName, clock: Clock
) -> bool:
    """Whether a session of the same follower and another query lives on this session's executor, which both would lose
    together. Waits up to `cadence.ELDER_LOOKS_MS` where one may. Every `ROUNDS_TO_MOVE` rounds False in any case.

    Raises StoreError.
    """
    if name.number % ROUNDS_TO_MOVE == 0:
        return False
    prefix = fetch_progress_path(broker_epoch, f"{fetcher_id}-")

    def neighbours() -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for path in (meta.path for meta in objects.list(prefix)):
            slot, _, rest = path.removeprefix(prefix).partition("-")
            if slot != str(name.slot) and rest.endswith(f"-{name.place}"):
                content = objects.get_register(path)
                if content is not None and writer_state(content) != ENDED:
                    contents[path] = content
        return contents

    before = neighbours()
    if not before:
        return False
    for pause_ms in cadence.ELDER_LOOKS_MS:
        clock.sleep_ms(pause_ms)
        if any(before.get(path) not in (None, content) for path, content in neighbours().items()):
            return True
    return False
