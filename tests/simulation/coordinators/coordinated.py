"""Groups and transactions in a simulated cluster: the real coordinators, their clients, and kills in every state.

`simulate_coordinated(seed)` is a run whose brokers host real coordinators: processors with transactions, readers under
read_committed, members of a group. `killed_in` counts in which states coordinators were when their process was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from stratalog.replication.broker.broker import Broker
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.runtime.hosted_shard import HostedShard
from stratalog.replication.coordinator.runtime.kinds import COORDINATOR_KINDS
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.groups import OffsetCommitResponse, TxnOffsetCommitResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    EndTxnResponse,
)
from tests.simulation.cluster import TOPIC, Setting, SimCluster
from tests.simulation.coordinators.consumer_members import ConsumerGroups, ConsumerMember
from tests.simulation.coordinators.groups import Groups, Member
from tests.simulation.coordinators.transactions import Book, CommittedReader, Processor
from tests.simulation.faults import Faults
from tests.simulation.run import PLAIN, RETAINED, Outcome, quiet, setting_of, simulate, with_domain_troubles
from tests.simulation.troubles import restart

DURATION_MS = 6_000
END_MS = 130_000
"""Time until clients have ended and abandoned transactions have timed out. A marker on its way to a dead process is
sent again after 30 s (`replication.coordinator.runtime.remote_appends`), and a coordinator whose clock
jumped by up to 90 s stamped a transaction's start by it."""
GROUP_ID = "g"
NAMES = ("tx0", "tx1")
FETCH_TRIES = 900

COMMITTING, ENDING = "commit", "end-transaction"
"""Offsets, or a transaction's outcome, are on their way into the log."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of a run.

    late       the probability that a request arrives a second time, much later
    gives_up   processors of version 0 abort while a batch is under way
    fenced     the probability that a member commits once more after its generation
    names      of processors, two each
    consumers  members of a KIP-848 group, with `assignors` also by the classic protocol
    """

    version: int = TRANSACTION_VERSION_2
    late: float = 0.1
    members: int = 3
    fenced: float = 0.0
    names: tuple[str, ...] = NAMES
    consumers: int = 0
    assignors: tuple[str, ...] = ()
    gives_up: bool = False


class Coordinated:
    """The workload of one run."""

    def __init__(self, clients: Clients, killed_in: Counter[str], sim: SimCluster) -> None:
        self.sim = sim
        self.book, self.groups, self.consumers = Book(sim), Groups(sim), ConsumerGroups(sim)
        self._killed_in = killed_in
        sim.on_crash = self._note
        self._processors = [
            Processor(sim, self.book, name, clients.version, clients.late, gives_up=clients.gives_up)
            for name in clients.names
            for _ in range(2)
        ]
        self._members = [
            Member(sim, self.groups, f"m{number}", GROUP_ID, clients.fenced) for number in range(clients.members)
        ]
        self.consumers.assignors = clients.assignors
        self._consumers = [ConsumerMember(sim, self.consumers, number) for number in range(clients.consumers)]
        self._reader = CommittedReader(sim, self.book)
        works: list[tuple[str, Callable[[], None]]] = [
            *((f"t{number}", each.run) for number, each in enumerate(self._processors)),
            *((f"m{number}", each.run) for number, each in enumerate(self._members)),
            *((each.name, each.run) for each in self._consumers),
        ]
        self._actors = [sim.scheduler.spawn(name, f"client-{name}", run) for name, run in works]
        sim.scheduler.spawn("rc", "client-rc", self._reader.run)

    @property
    def acked_count(self) -> int:
        return self.book.committed_count + self.groups.committed_count + self.consumers.committed_count

    def _note(self, broker: Broker) -> None:
        for shard in broker.coordinators._shards.values():
            self._killed_in.update(states_of(shard))

    def check_end(self) -> None:
        """Clients end, their open transactions time out, and everything is read."""
        self._replace_deposed()
        self._await("clients do not end", lambda: all(actor.is_over for actor in self._actors))
        self._await("a transaction stays open", self._is_all_read)
        offsets: dict[str, int] = {}
        asker = self.sim.scheduler.spawn("end", "client-end", lambda: offsets.update(self._offsets()))
        self._await("no stable offset", lambda: asker.is_over)
        self.book.check_end(offsets)
        self.groups.check_end()
        self.consumers.check_end()

    def _replace_deposed(self) -> None:
        """A process that hung may have registered again in place of the one that was started for it; clients would not
        find it, so the host restarts."""
        for host in self.sim.hosts.values():
            if host.broker is None or host.broker.stopped_by is not None:
                names = f"host-{host.broker_id}.", f"control-{host.broker_id}."
                scheduler = self.sim.scheduler
                scheduler.kill([actor for actor in list(scheduler.actors) if actor.host.startswith(names)])
                restart(self.sim, host)

    def _await(self, what: str, done: Callable[[], bool]) -> None:
        scheduler = self.sim.scheduler
        scheduler.run_until(scheduler.now_ms + END_MS, done, poll_ms=50)
        if not done():
            self.book.fail("Liveness", f"{END_MS} ms after the last fault {what}")

    def _is_all_read(self) -> bool:
        for log, history in self.sim.invariants.histories.items():
            if history.topic_partition.topic != TOPIC or history.lossy:
                continue
            if self._reader.positions.get(log, 0) < history.high_watermark:
                return False
        return True

    def _offsets(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self._processors:
            found[each.name] = self._until_answered(each.stable_offset)
        for partition in range(3) if self._members else ():
            self._until_answered(lambda at=partition: self._members[0].fetch(at))
        return found

    def _until_answered(self, ask: Callable[[], int | None]) -> int:
        for _ in range(FETCH_TRIES):
            offset = ask()
            if offset is not None:
                return offset
            self.sim.clock.sleep_ms(50)
        self.book.fail("Liveness", "no coordinator returns the committed offset")
        return -1


def states_of(hosted: HostedShard) -> set[str]:
    """The state of a coordinator's work."""
    shard = hosted._shard
    states = {"folding"} if not hosted.is_active else set()
    if isinstance(shard, GroupShard):
        states |= {each.state.value for each in shard.table.groups.values() if isinstance(each, ClassicGroup)}
    if isinstance(shard, TransactionShard):
        states |= {each.state.label for each in shard._transactions.values()}
    waiting = [response for write in hosted._writes._waiting for _, response in write.answers]
    if any(isinstance(each, OffsetCommitResponse | TxnOffsetCommitResponse) for each in waiting):
        states.add(COMMITTING)
    if any(isinstance(each, EndTxnResponse) for each in waiting):
        states.add(ENDING)
    return states


def coordinated_setting(seed: int, killed_in: Counter[str], clients: Clients | None = None) -> Setting:
    """The setting of a seed's run; every third one has producers of before KIP-890, every second one fenced members."""
    rng = Random(-1_000_003 - seed)
    if clients is None:
        is_old = rng.random() < 0.33
        version, late = (TRANSACTION_VERSION_0, 0.0) if is_old else (TRANSACTION_VERSION_2, 0.1)
        gives_up = Random(-4_000_037 - seed).random() < 0.7
        clients = Clients(version, late, fenced=0.3 if seed % 2 else 0.0, gives_up=gives_up)
    plain = setting_of(seed)
    return replace(
        plain,
        partitions=2,
        configs=(*rng.choice([PLAIN, PLAIN, RETAINED]), plain.configs[-1]),
        coordinators=COORDINATOR_KINDS,
        workload=partial(Coordinated, clients, killed_in),
        producers=0,
        sinks=0,
        erases=False,
    )


def simulate_coordinated(
    seed: int,
    *,
    clients: Clients | None = None,
    faults: Faults | None = None,
    duration_ms: int = DURATION_MS,
    configs: tuple[tuple[str, str], ...] | None = None,
    in_domain: bool = False,
) -> tuple[Outcome, Counter[str]]:
    """One run, and the number of kills by state of the coordinator. `configs`: of the topic. `in_domain`: it is in a
    storage domain, with those of the coordinators."""
    killed_in: Counter[str] = Counter()
    setting = coordinated_setting(seed, killed_in, clients)
    if configs is not None:
        setting = replace(setting, configs=(*configs, setting.configs[-1]))
    if faults is None:  # calmer than other runs: a transaction takes a dozen requests
        rng = Random(seed)
        faults = replace(Faults.drawn(rng), trouble_ms=rng.choice([300, 700, 1_500]))
    if in_domain:
        faults, setting = with_domain_troubles(faults, seed), replace(setting, in_domain=True, endpoint=False)
    return simulate(seed, duration_ms=duration_ms, faults=faults, setting=setting), killed_in


def run_coordinated(first_seed: int, count: int, *, in_domain: bool = False) -> list[Outcome]:
    """Several seeds one after the other; the story only of one that breaks an invariant."""
    with quiet():
        seeds = range(first_seed, first_seed + count)
        outcomes = (simulate_coordinated(seed, in_domain=in_domain)[0] for seed in seeds)
        return [each if each.violation is not None else replace(each, story=()) for each in outcomes]


def run_coordinated_in_domain(first_seed: int, count: int) -> list[Outcome]:
    """The same in a storage domain."""
    return run_coordinated(first_seed, count, in_domain=True)
