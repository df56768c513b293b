"""One simulated run: a seed decides faults, workload and interleaving; then all faults end."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from unittest.mock import patch

from stratalog.replication import cadence
from stratalog.replication.cadence import Heartbeats
from stratalog.replication.controller.election.preferred_leaders import ElectionType, elect_leaders
from stratalog.replication.controller.reassignment import is_reassigning
from stratalog.replication.metadata.log import METADATA_CONFIG, open_metadata
from stratalog.replication.metadata.records import NO_LEADER, record_from_json
from stratalog.storage.errors import CorruptMessageError, LogLostError, UnknownTopicOrPartitionError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.cleaner import CleanerTurn
from stratalog.storage.upkeep.compaction import is_due, log_to_clean
from tests.simulation.clients import start_clients
from tests.simulation.cluster import (
    COMPACTED,
    DOMAIN_ROOTS,
    METADATA_ROOT,
    QUICK_UPKEEP,
    TOPIC,
    UPKEEP,
    Host,
    Setting,
    SimCluster,
)
from tests.simulation.domains.leftovers import check_nothing_is_orphaned
from tests.simulation.endpoint.endpoints import Endpoints
from tests.simulation.erasures.eraser import Eraser
from tests.simulation.faults import CUT_DOMAIN, DOMAIN_AWAY, TWO_CRASH, Faults
from tests.simulation.inbox.sink import Sink
from tests.simulation.invariants import Violation
from tests.simulation.shadow import Shadow
from tests.simulation.troubles import make_trouble, restart

DURATION_MS = 1_300
KILLED_MS = 4_000
"""That of a run with many kills."""
STEPS_MIN = 300
"""The fewest steps of a run: it lasts longer if its hosts are down or paused for long."""
TROUBLE_MS_MAX = 60_000
RECOVERY_MS = 20_000
QUIET_BEAT_MS = 400
QUIET: dict[str, object] = {
    "METADATA_UPKEEP": replace(cadence.METADATA_UPKEEP, ms=400),
    "RESTS_AFTER": replace(cadence.RESTS_AFTER, ms=250),
    "RESTING_SILENCE": replace(cadence.RESTING_SILENCE, ms=3 * QUIET_BEAT_MS),
    "RESTING_LENGTH": replace(cadence.RESTING_LENGTH, ms=1_000),
    "HEARTBEATS_RESTING": Heartbeats(QUIET_BEAT_MS, QUIET_BEAT_MS, 1_000, 200, 1_000),
    "HEARTBEATS_STANDBY": Heartbeats(QUIET_BEAT_MS, QUIET_BEAT_MS, 1_000, 60, 300),
    "HEARTBEATS_STANDBY_RESTING": Heartbeats(QUIET_BEAT_MS, QUIET_BEAT_MS, 1_000, 200, 1_000),
    "HEARTBEATS_STANDBY_ENDING": Heartbeats(QUIET_BEAT_MS, QUIET_BEAT_MS, 1_000, 20, 300),
}
"""Rows of the table of pauses that make sessions of 1.5 s rest where storage is polled, as real ones of 60 s and longer
do, and a controller do upkeep within a run."""
UPKEEP_MS = 180_000
"""The longest time that slow upkeep may need after a run; a session lasts a hundredth of it."""
OFFLINE_MS_MAX = 3_000
"""The time in which a leader that is alone in the ISR, and knows it, leads with what it has."""
AVAILABILITY_POLL_MS = 300
CUT_OFF_MS_MAX = 6_000
"""The time in which a leader that cannot reach its storage domain has given way, also with a step that is parked."""
WHOLE_PRODUCERS_COMMITS = 5
"""Real logs name their whole producer state every 20 commits, and clean-up keeps these."""
PLAIN: tuple[tuple[str, str], ...] = ()
RETAINED = (("segment.files.max", "3"), ("retention.bytes", "1500"))

QUICK_METADATA = LogConfig.from_properties(
    {
        **METADATA_CONFIG.overrides,
        "segment.files.max": "4",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "400",
        "file.delete.delay.ms": "500",
        "stratalog.snapshot.retention.ms": "0",
    }
)
"""Real segments of the metadata log are an hour long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; `violation` None means that all invariants held. `answered`: decisions of coordinators; `kills`:
    processes of brokers that were killed."""

    seed: int
    steps: int
    acked: int
    leader_epochs: int
    violation: Violation | None
    story: tuple[str, ...]
    answered: int = 0
    kills: int = 0


def setting_of(seed: int) -> Setting:
    """The setting of a seed's run."""
    rng = Random(-1 - seed)
    configs = rng.choice([PLAIN, PLAIN, RETAINED, COMPACTED])
    setting = Setting(
        partitions=rng.choice([1, 1, 1, 2]),
        configs=(*configs, ("min.insync.replicas", str(1 + seed % 2))),
        upkeep=rng.choice([UPKEEP, QUICK_UPKEEP]),
        notifies=rng.random() < 0.85,
        pause_ms_max=rng.choice([80, 80, 300, 1_000]),
        is_durable=rng.random() < 0.15,
        recreates=Random(-2_000_003 - seed).random() < 0.25,
        erases=Random(-3_000_017 - seed).random() < 0.25,
        endpoint=Random(-5_000_011 - seed).random() < 0.25,
        sinks=Random(-11_000_003 - seed).choice([0, 0, 0, 2]),
        file_writers_ms=Random(-7_000_003 - seed).choice([0, 0, 0, 20, 300]),
        beside=Random(-13_000_027 - seed).random() < 0.25,
    )
    if setting.notifies or rng.random() < 0.5:
        return setting
    return replace(setting, partitions=rng.choice([2, 3, 6]), producers=5, calls_max=rng.choice([2, 32]))


def simulate(
    seed: int, *, duration_ms: int = DURATION_MS, faults: Faults | None = None, setting: Setting | None = None
) -> Outcome:
    """Run one seed: `duration_ms` of virtual time with faults, then until the cluster has recovered."""
    sim = SimCluster(seed, faults or Faults.drawn(Random(seed)), setting or setting_of(seed))
    violation: Violation | None = None
    answered = 0
    with repeatable(), sim.metadata_model.watching():
        try:
            sim.set_up()
            start_clients(sim, sim.setting.producers)
            if sim.setting.endpoint:
                endpoints = Endpoints(sim)
                sim.on_appended = endpoints.appended
                endpoints.start()
            for number in range(sim.setting.sinks):
                sim.scheduler.spawn(f"s{number}", f"client-s{number}", Sink(sim, number).run)
            if sim.setting.erases:
                sim.scheduler.spawn("e0", "client-e0", Eraser(sim).run)
            workload = sim.setting.workload(sim) if sim.setting.workload is not None else None
            availability = Availability(sim)
            _trouble(sim, duration_ms, availability)
            _recover(sim, availability)
            sim.invariants.check_end()
            if workload is not None:
                answered = workload.acked_count
                workload.check_end()
            if sim.setting.in_domain:
                sim.scheduler.kill(list(sim.scheduler.actors))
                check_nothing_is_orphaned(sim)
        except Violation as found:
            violation = found
        sim.scheduler.kill(list(sim.scheduler.actors))
    invariants = sim.invariants
    return Outcome(
        seed,
        sim.scheduler.steps,
        invariants.acked_count,
        invariants.leader_changes,
        violation,
        tuple(sim.event_log),
        answered,
        sim.kills,
    )


def in_domain(seed: int) -> Outcome:
    """A run whose topics are in a storage domain that the brokers share."""
    faults = with_domain_troubles(Faults.drawn(Random(seed)), seed)
    return simulate(seed, faults=faults, setting=replace(setting_of(seed), in_domain=True, endpoint=False))


def killed_in_domain(seed: int) -> Outcome:
    """A run in a storage domain in which brokers are killed several times a second, also while they upload."""
    rng = Random(-17_000_023 - seed)
    faults = Faults(
        switch=rng.choice([0.1, 0.2, 0.4]),
        park=rng.choice([0.0, 0.002]),
        lost_request=rng.choice([0.0, 0.005, 0.02]),
        lost_answer=rng.choice([0.0, 0.003]),
        late=0.8,
        doubled=rng.choice([0.0, 0.05, 0.3]),
        trouble_ms=100,
        weights={"crash": 8, "restart all": 3, TWO_CRASH: 1},
    )
    setting = replace(setting_of(seed), in_domain=True, endpoint=False)
    return simulate(seed, duration_ms=KILLED_MS, faults=faults, setting=setting)


def run_killed_in_domain(first_seed: int, count: int) -> list[Outcome]:
    """As `run_seeds`, with many kills in a storage domain."""
    return _run_each(killed_in_domain, first_seed, count)


def with_domain_troubles(faults: Faults, seed: int) -> Faults:
    """This mix, with the troubles of a storage domain."""
    rng = Random(-13_000_027 - seed)
    weights = {CUT_DOMAIN: rng.choice([0, 1, 3]), DOMAIN_AWAY: rng.choice([0, 0, 1])}
    return replace(faults, weights={**faults.weights, **weights})


def run_in_domain(first_seed: int, count: int) -> list[Outcome]:
    """As `run_seeds`, in a storage domain."""
    return _run_each(in_domain, first_seed, count)


def with_moves(seed: int) -> Outcome:
    """A run whose topics move between the brokers' roots and two storage domains, and have copies there."""
    faults, rng = Faults.drawn(Random(seed)), Random(-17_000_023 - seed)
    faults.weights = {**faults.weights, CUT_DOMAIN: rng.choice([0, 0, 1]), DOMAIN_AWAY: rng.choice([0, 0, 1])}
    brokers, in_domain = rng.choice([3, 4, 5]), rng.random() < 0.5
    setting = replace(setting_of(seed), brokers=brokers, in_domain=in_domain, moves=True, endpoint=False)
    return simulate(seed, faults=faults, setting=setting)


def run_with_moves(first_seed: int, count: int) -> list[Outcome]:
    """As `run_seeds`, with topics that move."""
    return _run_each(with_moves, first_seed, count)


@contextmanager
def repeatable() -> Iterator[None]:
    """Without what runs share within a process: the turn to clean a log, which each real process has for itself.

    A dozen parts fold the same metadata: each record is decoded once.
    """
    with (
        patch.object(CleanerTurn, "acquire", lambda *_: True),
        patch("stratalog.storage.log.partition_log.WHOLE_PRODUCERS_COMMITS", WHOLE_PRODUCERS_COMMITS),
        patch("stratalog.storage.upkeep.chores.WHOLE_PRODUCERS_COMMITS_MAX", WHOLE_PRODUCERS_COMMITS),
        patch("stratalog.replication.metadata.log.record_from_json", lru_cache(record_from_json)),
        patch("stratalog.replication.metadata.log.METADATA_CONFIG", QUICK_METADATA),
        patch("stratalog.replication.controller.history_writer.APPEND_RECORDS", 8),
        ExitStack() as quiet_times,
    ):
        for name, value in QUIET.items():
            quiet_times.enter_context(patch.object(cadence, name, value))
        yield


def run_seeds(first_seed: int, count: int) -> list[Outcome]:
    """Several seeds one after the other; the story only of one that breaks an invariant."""
    return _run_each(simulate, first_seed, count)


def _run_each(run: Callable[[int], Outcome], first_seed: int, count: int) -> list[Outcome]:
    with quiet():
        outcomes = (run(seed) for seed in range(first_seed, first_seed + count))
        return [o if o.violation is not None else replace(o, story=()) for o in outcomes]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the log lines that faults cause, and without the garbage collector: a run is short."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def _trouble(sim: SimCluster, duration_ms: int, availability: Availability) -> None:
    scheduler = sim.scheduler
    end_ms, pause_ms = scheduler.now_ms + duration_ms, scheduler.faults.trouble_ms
    last_ms = scheduler.now_ms + TROUBLE_MS_MAX
    while scheduler.now_ms < end_ms or (scheduler.steps < STEPS_MIN and scheduler.now_ms < last_ms):
        next_ms = scheduler.now_ms + scheduler.random.randrange(pause_ms // 3, 2 * pause_ms)
        scheduler.run_until(next_ms, availability.holds, poll_ms=AVAILABILITY_POLL_MS)
        availability.check()
        make_trouble(sim)


class Availability:
    """The invariant that no partition stays offline while a live replica could lead it: since when each one does."""

    def __init__(self, sim: SimCluster) -> None:
        self._sim = sim
        self._since_ms: dict[tuple[TopicPartition, int], int] = {}
        self._cut_off_ms: dict[tuple[TopicPartition, int], int] = {}

    def holds(self) -> bool:
        """Check, and let the run go on."""
        self.check()
        return False

    def check(self) -> None:
        self._check_offline()
        self._check_cut_off()

    def _check_cut_off(self) -> None:
        """A leader that cannot reach the storage domain gives way to a replica that can."""
        now_ms, woke_ms = self._sim.scheduler.now_ms, self._sim.scheduler.woke_ms
        cut_off = {each for host in self._sim.hosts.values() for each in self._leads_cut_off(host)}
        self._cut_off_ms = {each: max(self._cut_off_ms.get(each, now_ms), woke_ms) for each in cut_off}
        for (topic_partition, leader_epoch), since_ms in self._cut_off_ms.items():
            if now_ms - since_ms > CUT_OFF_MS_MAX:
                state = self._sim.invariants.partitions[topic_partition]
                raise Violation(
                    "GivesWay",
                    f"{topic_partition} is led for {now_ms - since_ms} ms in leader epoch {leader_epoch} by a broker "
                    f"that cannot reach its domain: {state}",
                )

    def _leads_cut_off(self, host: Host) -> set[tuple[TopicPartition, int]]:
        """Those for which this broker tries to store something in vain, while another replica could."""
        found: set[tuple[TopicPartition, int]] = set()
        for topic_partition, replica in host.broker.leaders.items() if host.broker is not None else ():
            known = self._sim.invariants.partitions.get(topic_partition)
            if known != replica.state or replica.unanswered_ms(self._sim.scheduler.now_ms) is None:
                continue
            others = [
                r for r in known.replicas if known.is_held_in_sync(r) and r not in (host.broker_id, *known.offline)
            ]
            could_lead = any(self._is_well(self._sim.hosts[r], known.domain_of(r)) for r in others)
            if could_lead and self._is_cut_off(host, known.domain_of(host.broker_id)):
                found.add((topic_partition, replica.leader_epoch))
        return found

    def _is_cut_off(self, host: Host, domain: str) -> bool:
        return bool(domain) and self._sim.scheduler.is_cut(host.process, DOMAIN_ROOTS[domain])

    def _is_well(self, host: Host, domain: str) -> bool:
        """Whether a broker could lead a partition whose table it has in this domain, or in its root."""
        scheduler = self._sim.scheduler
        roots = METADATA_ROOT, host.root, DOMAIN_ROOTS.get(domain, host.root)
        hindered = any(scheduler.is_cut(host.process, root) or root in scheduler.hung for root in roots)
        is_paused = scheduler.paused_until_ms.get(host.process, 0) > scheduler.now_ms
        return host.broker_id in self._sim.invariants.live and host.broker is not None and not (hindered or is_paused)

    def _check_offline(self) -> None:
        """A leader refuses to lead for its damage only while another member of the ISR may lead. One that has lost its
        log is excepted: it must not lead."""
        now_ms, woke_ms = self._sim.scheduler.now_ms, self._sim.scheduler.woke_ms
        offline = {each for host in self._sim.hosts.values() for each in self._offline_alone(host)}
        self._since_ms = {each: max(self._since_ms.get(each, now_ms), woke_ms) for each in offline}
        for (topic_partition, partition_epoch), since_ms in self._since_ms.items():
            if now_ms - since_ms > OFFLINE_MS_MAX:
                raise Violation(
                    "NotOffline",
                    f"{topic_partition} is offline for {now_ms - since_ms} ms at partition epoch {partition_epoch}, "
                    f"though its leader is the whole ISR: {self._sim.invariants.partitions[topic_partition]}",
                )

    def _offline_alone(self, host: Host) -> set[tuple[TopicPartition, int]]:
        """Those that this broker should lead, as it knows by now, and does not since it found fault with its table."""
        broker = host.broker
        if broker is None or broker.stopped_by is not None:
            return set()
        image, found = broker.metadata.image, set()
        for topic_partition, replica in broker.leaders.items():
            known = image.partitions.get(topic_partition)
            if known is None or known != self._sim.invariants.partitions.get(topic_partition):
                continue
            has_failed = replica.failure is not None and not isinstance(replica.failure, LogLostError)
            if has_failed and (known.leader, known.isr) == (host.broker_id, (host.broker_id,)):
                found.add((topic_partition, known.partition_epoch))
        return found


def _recover(sim: SimCluster, availability: Availability) -> None:
    """No more faults: every partition gets a leader, every follower catches up (liveness)."""
    scheduler = sim.scheduler
    scheduler.end_faults()
    end_ms = scheduler.now_ms + RECOVERY_MS
    while scheduler.now_ms < end_ms:
        _restart_stopped(sim)
        if lost := _lost(sim):
            _elect_unclean(sim, lost)
            end_ms = scheduler.now_ms + RECOVERY_MS
        scheduler.run_until(end_ms, lambda: _is_to_be_seen_to(sim, availability), poll_ms=50)
        if not _ailing(sim) and not _leaving(sim):
            _await_upkeep(sim)
            return
    raise Violation("Liveness", f"{RECOVERY_MS} ms after the last fault: {_ailing(sim)}")


def _is_to_be_seen_to(sim: SimCluster, availability: Availability) -> bool:
    """Whether all has recovered, or a host or a partition waits for its operator."""
    availability.check()
    return (not _ailing(sim) and not _leaving(sim)) or bool(_stopped(sim) or _lost(sim))


def _await_upkeep(sim: SimCluster) -> None:
    """Slow upkeep ends, though its pieces last longer than sessions, and every replica is in sync then."""
    scheduler = sim.scheduler
    if scheduler.faults.slow_work_ms:
        end_ms = scheduler.now_ms + UPKEEP_MS
        scheduler.run_until(end_ms, lambda: not _uncompacted(sim) and not _ailing(sim), poll_ms=250)
        if left := _uncompacted(sim) or _ailing(sim):
            raise Violation("UpkeepEnds", f"{UPKEEP_MS} ms after the recovery: {left}")


def _stopped(sim: SimCluster) -> list[Host]:
    """Hosts without a broker that runs: a controlled shutdown may have taken until now."""
    return [host for host in sim.hosts.values() if host.broker is None or host.broker.stopped_by is not None]


def _leaving(sim: SimCluster) -> list[Host]:
    """Hosts whose controlled shutdown has not ended: they are to be restarted then."""
    return [host for host in sim.hosts.values() if host.broker is not None and host.is_leaving]


def _restart_stopped(sim: SimCluster) -> None:
    for host in _stopped(sim):
        sim.scheduler.kill(host.actors)
        restart(sim, host)


def _elect_unclean(sim: SimCluster, lost: Sequence[TopicPartition]) -> None:
    """An operator prefers what is left to an offline partition."""
    sim.log_event(f"unclean elections for {lost}")
    metadata = open_metadata(sim, METADATA_ROOT, sim.clock, sim.ids)
    metadata.propose(lambda image: elect_leaders(image, ElectionType.UNCLEAN, lost))


def _lost(sim: SimCluster) -> list[TopicPartition]:
    """Partitions that nobody leads since the only member of their ISR has lost its log, once all brokers are back."""
    if len(sim.invariants.live) < len(sim.hosts):
        return []
    return [tp for tp, state in sim.invariants.partitions.items() if state.leader == NO_LEADER and state.lost]


def _ailing(sim: SimCluster) -> str:
    """What has not recovered yet; empty when all has."""
    invariants = sim.invariants
    if invariants.torn:
        return f"brokers {sorted(invariants.torn)} lost power and have not registered since"
    for topic_partition, state in invariants.partitions.items():
        if len(state.isr) < len(state.replicas):
            return f"not every replica is in sync: {state}"
        if state.leader == NO_LEADER or is_reassigning(state):
            return f"nobody leads, or a reassignment has not ended: {state}"
        shadows = [invariants.shadow(broker_id, topic_partition) for broker_id in state.replicas]
        ends = [None if shadow is None else shadow.log_end for shadow in shadows]
        if len(set(ends)) > 1 or None in ends:
            return f"{topic_partition}: the log ends of {state.replicas} are {ends}"
        log = invariants.log_id(topic_partition)
        erased = [0 if shadow is None else shadow.erased for shadow in shadows]
        if log is not None and min(erased) < invariants.erased.newest_id(log):
            return f"{topic_partition}: erasures up to {erased} of {invariants.erased.newest_id(log)} are applied"
        history = invariants.history(topic_partition)
        if history is not None and not history.lossy and history.high_watermark < max(end or 0 for end in ends):
            return f"{topic_partition}: high watermark {history.high_watermark}, log end {ends[0]}"
        if unreadable := _unreadable(sim, topic_partition, state.replicas):
            return unreadable
        if not sim.is_compacted(state.topic) and not _are_equal([shadow for shadow in shadows if shadow is not None]):
            return f"{topic_partition}: the records of {state.replicas} differ"
    return "" if invariants.partitions else "no partition"


def _unreadable(sim: SimCluster, topic_partition: TopicPartition, replicas: Sequence[int]) -> str:
    """A replica that cannot be folded from its storage, whatever its broker holds in memory; empty when all can."""
    for broker_id in replicas:
        try:
            if sim.replica_table(broker_id, topic_partition).snapshot() is None:
                return f"{topic_partition} of broker {broker_id} has no table"
        except CorruptMessageError as reason:
            return str(reason)
    return ""


def _uncompacted(sim: SimCluster) -> str:
    """A replica with a pass of the cleaner that is due or under way; empty when there is none."""
    for topic_partition, state in sim.invariants.partitions.items():
        if topic_partition.topic != TOPIC or not sim.is_compacted(TOPIC):
            continue
        config = LogConfig.from_properties(dict(sim.setting.configs))
        for broker_id in state.replicas:
            log = PartitionLog(sim.replica_table(broker_id, topic_partition), config, sim.clock, sim.ids)
            try:
                log.refresh()
            except (CorruptMessageError, UnknownTopicOrPartitionError) as reason:
                return str(reason)  # it is copied again, or a reassignment has just begun
            position = log.state.cleaner
            first_dirty = max(position.first_dirty_offset, log.log_start_offset)
            left = log_to_clean(log.segments, first_dirty, log.log_end_offset)
            if position.under_way is not None or is_due(left, config):
                return f"{topic_partition} of broker {broker_id}: {position}, log end {log.log_end_offset}"
    return ""


def _are_equal(shadows: list[Shadow]) -> bool:
    """From the highest log start on: each replica applies retention separately."""
    log_start = max(shadow.log_start for shadow in shadows)
    readable = [{o: r for o, r in shadow.readable().items() if o >= log_start} for shadow in shadows]
    return all(records == readable[0] for records in readable)
