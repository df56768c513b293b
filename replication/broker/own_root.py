"""Whether a broker's own root answers writes, as its loop and the controller thread of its process see it.

I/O: where the loop's writes are late, a thread of its own writes a small object below the root: the loop may be stuck
in any call to a root that answers nothing, or busy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.progress.progress_object import Registers
from stratalog.replication.stores import Ports
from stratalog.storage.errors import StoreError, StoreFullError
from stratalog.storage.objects.port import ObjectStore

ROOT_PROBE = ".root-probe"
"""Path of the object that is written while the loop writes nothing."""


class OwnRoot:
    """The root is dead once a write has waited for `dead_ms` without any answer since: a third of a session, so that
    the broker is fenced, and others lead, before its session would expire. A stall that is shorter changes nothing.
    A full disk answers: a replica that cannot be written to is offline by itself. On an object store, where writes are
    paid, a root that has no replica which others could lead is written to now and then: one that refuses is found then,
    or by the first use.

    The loop writes small objects through `put_register` and `put`: each is an answer of its own, also where one
    publication writes several. `answers` is called regularly from one other thread. The fields are single values, so
    that no thread waits for another one.
    """

    def __init__(
        self,
        broker_id: int,
        store: ObjectStore,
        ports: Ports,
        config: BrokerConfig,
        own_registers: OwnRegisters | None = None,
    ) -> None:
        """`own_registers` keeps what is published here for readers of this process."""
        self._name = f"root-probe-{broker_id}"
        self._store = store
        self._clock = ports.clock
        self._threads = ports.threads
        self.is_shared = True
        """Whether others follow, or lead, what this root has replicas of. Set by the loop, read by any thread."""
        self._late_ms = config.broker_heartbeat_interval_ms * 5 // 4
        self._dead_ms = max(config.broker_session_timeout_ms // 3, 1)
        self._answered_ms = ports.clock.monotonic_ms()
        self._unanswered_ms: int | None = None
        """When the first write began that none has answered since."""
        self._checked_ms: int | None = None
        self._is_probing = False
        self._own_registers = own_registers

    def registers(self, root: str) -> Registers:
        """What a new registration publishes by; `root` is the URL of this root."""
        return self if self._own_registers is None else self._own_registers.begin(root, self)

    def asks(self) -> None:
        """A write begins."""
        if self._unanswered_ms is None:
            self._unanswered_ms = self._clock.monotonic_ms()

    def answered(self) -> None:
        """A write was answered."""
        self._answered_ms = self._clock.monotonic_ms()
        self._unanswered_ms = None

    def is_dead(self) -> bool:
        """Whether no write was answered for too long, though some were tried."""
        unanswered_ms = self._unanswered_ms
        return unanswered_ms is not None and self._clock.monotonic_ms() - unanswered_ms >= self._dead_ms

    def answers(self) -> bool:
        """`is_dead`, after a write of a thread's own has begun where the loop's are late. A caller that slept, perhaps
        with the whole process, begins to measure again."""
        now_ms = self._clock.monotonic_ms()
        has_slept = self._checked_ms is not None and now_ms - self._checked_ms > self._dead_ms
        self._checked_ms = now_ms
        if has_slept and self._unanswered_ms is not None:
            self._unanswered_ms = now_ms
        is_paid = self._store.distance.is_far and not self.is_shared
        if now_ms - self._answered_ms > (max(self._late_ms, cadence.FAR_ROOT_WRITTEN.ms) if is_paid else self._late_ms):
            self.asks()
            self._probe()
        return self.is_dead()

    def put_register(self, path: str, data: bytes) -> None:
        """Write an object of the loop (`progress_object.Registers`). Raises StoreError; a full disk has answered."""
        self._written(lambda: self._store.put_register(path, data))

    def put(self, path: str, data: bytes) -> None:
        """Write an object of the loop that stays, as an answer in the inbox. Raises as `put_register`."""
        self._written(lambda: self._store.put(path, data))

    def write(self) -> None:
        """Write the object in the calling thread. Raises StoreError, but not for a full disk."""
        with suppress(StoreFullError):
            self.put(ROOT_PROBE, b"")

    def _written(self, write: Callable[[], None]) -> None:
        self.asks()
        try:
            write()
        except StoreFullError:
            self.answered()
            raise
        self.answered()

    def _probe(self) -> None:
        if self._threads is None or self._is_probing:
            return
        self._is_probing = True
        self._threads.start(self._name, self._try_to_write)

    def _try_to_write(self) -> None:
        try:
            self.write()
        except StoreError:
            pass  # asked again at the next call
        finally:
            self._is_probing = False
