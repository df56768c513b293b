"""One running broker: its root, its two threads, its fetch sessions. An embedded cluster runs several of them.

I/O: the broker's root and its lock, threads and, through a fetch runner, Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.broker_root import folder_here, lock_alone, mark_clean_shutdown
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.controller import Controller
from stratalog.replication.controller.sessions import Beat, PeerBeats
from stratalog.replication.coordinator.runtime.kinds import coordinator_kinds
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.coordinator.topic_matches import TopicMatches
from stratalog.replication.follower.partitions import FetchJob
from stratalog.replication.follower.sessions.needed import needs_sessions
from stratalog.replication.follower.sessions.runner import FetchRunner
from stratalog.replication.metadata.backup.copies import BackupCopies
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import SharedMetadata
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.progress.progress import fetch_progress_path, progress_prefix
from stratalog.replication.stores import DeltaStores, FarAppends, FileWriters, OneByOne, Ports, request_ms_max
from stratalog.replication.threads.daemon_threads import DaemonThreads, is_done_within
from stratalog.replication.threads.side_by_side import SideBySide
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.replication.threads.upkeep_thread import UpkeepThread, UpkeepThreads
from stratalog.storage import errors
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import LogDirNotFoundError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.distance import FAR, NEAR, Distance, farthest
from stratalog.storage.objects.opened import is_remote, open_store
from stratalog.storage.objects.together import Hedging

_LOG = line_logger("stratalog.cluster")

START_WAIT_MS = 60_000
TRY_AGAIN_S = 0.1
REGISTERED_WAIT_S = 0.1
JOIN_WAIT_S = 30
END_WAIT_S = 20
"""Longest time of each part of a broker's end: a root that answers nothing must not keep the process."""
TURN_WAIT_S = 0.02
"""Longest wait for another broker's turn, so that a stuck disk does not block the others."""


def lock_root(root: str) -> IO[str]:
    """Make a broker's root and lock it; in an object store there is nothing to make. Raises KafkaStorageError when
    another broker of this machine works on it."""
    refusal = f"Failed to acquire lock on file .lock in {root}. A broker in another process is using this directory."
    return lock_alone(folder_here(open_store(root, create=not is_remote(root))), refusal)


SendBeat = Callable[[PeerBeats, Beat, tuple[int, int], int], None]
"""`(own, beat, (broker id, broker epoch), now_ms)`: sends a beat of the broker that has `own`; does not block."""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What the brokers of one process share.

    peers           the brokers that coordinators can call, by id
    metadata        what they share of the metadata log, each part of which reads it for itself
    own_registers   keeps what they publish for readers in this process
    domain_urls     of the storage domains that there were when the process joined
    turn_intervals  of the brokers' loops that run
    send_beat       sends a broker's beat to another one
    turn_lock       held during a turn while many partitions move a little each: such appends are short pieces of Python
                    between short system calls, and threads that compete for the interpreter at each of them need more
                    CPU and are not faster; large appends run side by side
    """

    metadata_root: str
    config: BrokerConfig
    runner: FetchRunner
    upkeep: UpkeepThreads
    peers: Mapping[int, Appends]
    metadata: SharedMetadata
    own_registers: OwnRegisters
    send_beat: SendBeat
    domain_urls: Sequence[str] = ()
    turn_intervals: list[TurnInterval] = field(default_factory=list)
    turn_lock: threading.Lock = field(default_factory=threading.Lock)


class RunningBroker:
    """`start`; then `sync_ahead`, `end_loop`, `move_leaderships` and, once its fetch sessions have ended, `close`; or
    `kill`.

    registered  set once the broker is part of the cluster
    failure     the last error, even if a later try succeeded
    """

    def __init__(self, identity: BrokerIdentity, shared: SharedParts, lock: IO[str]) -> None:
        """`lock` is that of `lock_root`; it is released at the end, also when this fails."""
        self.failure: StratalogError | None = None
        self.registered = threading.Event()
        self._shared = shared
        self._is_ending = threading.Event()
        self._unfetched_epoch: int | None = None
        """The registration that has nothing to follow yet, on an object store; None: its sessions have begun."""
        self._seen_image: ClusterImage | None = None
        self._logged: dict[int, str] = {}
        """The failure that each thread logged last, until a turn succeeds: it is not logged for each try."""
        self._lock = lock
        try:
            request_ms, upkeep = request_ms_max(shared.config.broker_session_timeout_ms), shared.upkeep
            hedging = Hedging(share_max=shared.config.stratalog_hedged_requests_percent / 100)
            stores = DeltaStores(RandomIds(), request_ms=request_ms, hedging=hedging)
            clock, threads = SystemClock(), DaemonThreads()
            self._own_distance = own = stores.objects(identity.root).distance
            distance = farthest([own, *(_distance_of(stores, url) for url in shared.domain_urls)])
            together = SideBySide(f"broker-{identity.broker_id}-io") if distance.is_far else OneByOne()
            self._files = UpkeepThread(clock, name=f"broker-{identity.broker_id}-files")
            of_appends = f"broker-{identity.broker_id}-appends"
            self._appends = ThreadPoolExecutor(FAR.calls_max, thread_name_prefix=of_appends)
            ports = Ports(
                stores,
                clock,
                RandomIds(),
                upkeep.at(identity.root),
                threads=threads,
                together=together,
                file_writers=None if own.is_far else FileWriters(self._files),
                appends=FarAppends(self._appends, lambda table: table.kept_ms > 0),
                metadata=shared.metadata,
            )
            self.beats = PeerBeats()
            self.beats.send = self._send_beats
            setup = BrokerSetup(identity, shared.config, shared.metadata_root, None, shared.own_registers, self.beats)
            self.broker = Broker(
                setup,
                ports,
                on_registered=self._start_fetching,
                peers=shared.peers,
                turn_interval=TurnInterval(shared.turn_intervals),
                coordinators=coordinator_kinds(TopicMatches(clock)),
            )

            def beside(executor: Executor) -> Ports:
                own_stores = DeltaStores(ports.ids, request_ms=request_ms)
                return Ports(own_stores, clock, ports.ids, executor, metadata=shared.metadata)

            self.controller = Controller(
                identity.broker_id,
                self.broker.incarnation_id,
                shared.config,
                shared.metadata_root,
                beside(upkeep.at(shared.metadata_root)),
            )
            self.controller.beats = self.beats
            self.beats.on_newer = self.broker.expect_metadata
            self.beats.is_current = self._is_current
            copying, config = beside(upkeep.at(identity.root, shared.metadata_root)), shared.config
            interval_ms = config.stratalog_metadata_backup_interval_ms
            self._copies = BackupCopies(identity.root, shared.metadata_root, copying, interval_ms)
        except BaseException:
            self._lock.close()
            raise
        broker_id = identity.broker_id
        self._threads = [
            threading.Thread(target=self._run_broker, name=f"broker-{broker_id}", daemon=True),
            threading.Thread(target=self._run_controller, name=f"controller-{broker_id}", daemon=True),
        ]

    # -- its threads -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; the threads end after the turn they are in, without another write, once the broker is to end."""
        for thread in self._threads:
            thread.start()

    def _run_broker(self) -> None:
        broker, begun_ms = self.broker, SystemClock().monotonic_ms()
        while not self._is_over() and not self.registered.is_set():
            self._try(lambda: self._register(SystemClock().monotonic_ms() - begun_ms))
        self._shared.turn_intervals.append(broker.turn_interval)
        while not self._is_ending.is_set() and broker.stopped_by is None:
            self._try(self._turn)
        self._shared.turn_intervals.remove(broker.turn_interval)

    def _is_over(self) -> bool:
        return self._is_ending.is_set() or self.broker.stopped_by is not None

    def _register(self, waited_ms: int) -> None:
        try:
            self.broker.start()
        except StratalogError as reason:
            if is_final(reason, waited_ms, self._shared.config.broker_session_timeout_ms):
                self.broker.stop(reason)
            raise
        self.registered.set()

    def _turn(self) -> None:
        broker = self.broker
        moves_many = broker.turn_interval.moves_many(SystemClock().monotonic_ms())
        holds = moves_many and self._shared.turn_lock.acquire(timeout=TURN_WAIT_S)
        try:
            moved = broker.step()
        finally:
            if holds:
                self._shared.turn_lock.release()
        self._fetch_if_needed()
        rest_ms = broker.rest_ms()
        if rest_ms:
            SystemClock().sleep_ms(rest_ms)
        broker.wakeup.wait_ms(broker.wait_ms(moved=moved))

    def _run_controller(self) -> None:
        self._try(self._fold_ahead)
        while not self._is_over():
            if self.registered.wait(REGISTERED_WAIT_S):
                self._try(self._control)
                self._is_ending.wait(self.controller.poll_interval_ms / 1000)

    def _fold_ahead(self) -> None:
        """Read the metadata log while the broker registers: the first step finds it folded."""
        self.controller.metadata.refresh_image()

    def _control(self) -> None:
        self.controller.step(self.broker.epoch_to_give_up())
        self._copies.step(self.controller.metadata.log.log_end_offset)
        if self.controller.expects_changes:
            self.broker.expect_metadata()

    def _try(self, turn: Callable[[], None]) -> None:
        try:
            turn()
            self._logged.pop(threading.get_ident(), None)
            return
        except StratalogError as reason:
            self.failure = reason
            if str(reason) != self._logged.get(threading.get_ident()) and self.broker.stopped_by is None:
                _LOG.warning("broker %d, trying again: %s", self.broker.broker_id, reason)
            self._logged[threading.get_ident()] = str(reason)
        except Exception as defect:  # noqa: BLE001 - a thread that ends silently would hide it
            self.failure = errors.UnknownServerError(f"{type(defect).__name__}: {defect}")
            _LOG.exception("broker %d", self.broker.broker_id)
        self._is_ending.wait(TRY_AGAIN_S)

    def _is_current(self, broker_id: int, broker_epoch: int) -> bool:
        return self.broker.metadata.image.is_current(broker_id, broker_epoch)

    def _send_beats(self, beat: Beat, peers: Mapping[int, int], now_ms: int) -> None:
        for peer in peers.items():
            self._shared.send_beat(self.beats, beat, peer, now_ms)

    def _start_fetching(self, broker_epoch: int) -> None:
        """Called by the broker's loop at every registration. Idle sessions on an object store are paid: there they
        begin when there is something to follow."""
        if self._own_distance.is_far:
            self._unfetched_epoch, self._seen_image = broker_epoch, None
        else:
            self._fetch(broker_epoch)

    def _fetch_if_needed(self) -> None:
        image = self.broker.metadata.image
        if self._unfetched_epoch is None or image is self._seen_image:
            return
        self._seen_image = image
        if needs_sessions(image, self.broker.broker_id):
            broker_epoch, self._unfetched_epoch = self._unfetched_epoch, None
            self._fetch(broker_epoch)

    def _fetch(self, broker_epoch: int) -> None:
        """Begin the sessions in a thread: starting a query takes seconds."""
        shared, broker = self._shared, self.broker
        job = FetchJob(broker.broker_id, broker_epoch, broker.root, shared.metadata_root, shared.config)
        name = f"start-fetch-{broker.broker_id}"
        threading.Thread(target=shared.runner.start, args=(job,), name=name, daemon=True).start()

    # -- its beginning and end ---------------------------------------------------------------------------

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch session of this registration has begun, or there is nothing to follow."""
        if self._unfetched_epoch is not None:
            return self._seen_image is not None
        first_session = fetch_progress_path(self.broker.broker_epoch, "")
        found = open_store(self.broker.root).list(progress_prefix(self.broker.broker_epoch))
        return any(meta.path.startswith(first_session) for meta in found)

    def kill(self) -> None:
        """End as by a crash: nothing is flushed or deregistered."""
        self.end_loop()
        self.broker.stop(errors.BrokerNotAvailableError(f"broker {self.broker.broker_id} was killed"))
        self._join_controller()
        self._lock.close()

    def sync_ahead(self) -> None:
        """Make durable what is there, while the broker serves on: the rest is then little (`move_leaderships`)."""
        if self._is_member:
            self._is_done(self.broker.sync_ahead)

    @property
    def _is_member(self) -> bool:
        return self.registered.is_set() and self.broker.stopped_by is None

    def move_leaderships(self, on_moved: Callable[[], None]) -> bool:
        """After `end_loop`, a controlled shutdown: others lead what it led. False when that failed, or it was not part
        of the cluster. `on_moved`: as `Broker.shut_down` has it."""
        is_stuck = self._threads[0].is_alive()  # in a call to its own root: the loop still uses what would be moved
        return self._is_member and not is_stuck and self._is_done(lambda: self.broker.shut_down(on_moved))

    def close(self, *, left_in_order: bool) -> None:
        """After its fetch sessions have ended: mark the root as clean, if it is, and release it."""
        self._join_controller()
        if left_in_order:
            self._is_done(lambda: mark_clean_shutdown(open_store(self.broker.root), self.broker.broker_epoch))
        self._lock.close()

    def ask_to_end(self) -> None:
        """Let the threads end after the turn they are in."""
        self._is_ending.set()
        self.broker.wakeup.wake()

    def end_loop(self) -> None:
        """End the broker's loop after the turn it is in. The controller ends beside it: leaderships do not wait for
        what that copies or reads."""
        self.ask_to_end()
        loop = self._threads[0]
        if loop.ident is not None:
            loop.join(timeout=JOIN_WAIT_S)
        self._files.shutdown(wait=False)
        if not loop.is_alive():
            self.broker.wakeup.close()

    def _join_controller(self) -> None:
        controller = self._threads[1]
        if controller.ident is not None:
            controller.join(timeout=JOIN_WAIT_S)

    def _is_done(self, part: Callable[[], None]) -> bool:
        """One part of the end; the others follow even if it fails, or takes too long."""
        broker_id = self.broker.broker_id
        try:
            if is_done_within(END_WAIT_S, f"end-{broker_id}", part):
                return True
            _LOG.warning("broker %d did not shut down cleanly: no end after %d s", broker_id, END_WAIT_S)
        except StratalogError as reason:
            _LOG.warning("broker %d did not shut down cleanly: %s", broker_id, reason)
        return False


def await_up(running: Iterable[RunningBroker]) -> None:
    """Wait until they are registered and their first fetch sessions have begun: before that a follower only lags.

    Raises what made one stop, BrokerNotAvailableError for one that is not registered in 60,000 ms.
    """
    brokers = list(running)
    deadline_ms = SystemClock().monotonic_ms() + START_WAIT_MS
    for each in brokers:
        while not each.registered.wait(0.05):
            if each.broker.stopped_by is not None:
                raise each.broker.stopped_by
            if SystemClock().monotonic_ms() > deadline_ms:
                broker_id = each.broker.broker_id
                raise errors.BrokerNotAvailableError(
                    f"broker {broker_id} did not start in {START_WAIT_MS} ms: {each.failure}"
                )
    for each in brokers:
        while not each.is_fetching and each.broker.stopped_by is None:
            if SystemClock().monotonic_ms() > deadline_ms:
                _LOG.warning("broker %d: no fetch session after %d ms", each.broker.broker_id, START_WAIT_MS)
                break
            SystemClock().sleep_ms(50)


def is_final(refusal: StratalogError, waited_ms: int, session_timeout_ms: int) -> bool:
    """Whether a registration that was refused `waited_ms` after the first try need not be tried again.

    A broker that is live on another root may be this one before a restart, whose session expires within one and a half
    session timeouts. As Kafka's `initial.broker.registration.timeout.ms`.

    >>> is_final(errors.DuplicateBrokerRegistrationError("live"), waited_ms=9_000, session_timeout_ms=9_000)
    False
    >>> is_final(errors.InvalidRequestError("the root is broker 2's"), waited_ms=0, session_timeout_ms=9_000)
    True
    """
    if isinstance(refusal, errors.DuplicateBrokerRegistrationError):
        return waited_ms >= session_timeout_ms * 3 // 2
    return isinstance(refusal, errors.InvalidRequestError)


def _distance_of(stores: DeltaStores, url: str) -> Distance:
    """That of a storage domain; one whose directory is not there is tried again when it is used."""
    try:
        return stores.objects(url).distance
    except LogDirNotFoundError:
        return NEAR
