"""The larger troubles of a run: each affects a random host for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import BrokerNotAvailableError
from stratalog.storage.files.damage import DAMAGE_PATH, Damage
from tests.simulation.cluster import DOMAIN, DOMAIN_ROOTS, METADATA_ROOT, Host, SimCluster
from tests.simulation.faults import CUT_DOMAIN, DAYS, DOMAIN_AWAY, POWER_CUT_OF_ALL, TROUBLES, TWO_CRASH

CLOCK_JUMP_MS_MAX = 90_000
DAY_MS = 86_400_000
DAYS_MAX = 3
"""Two clocks differ by less than retention by time, and what else is kept for days, allows."""
REQUEST_MS = 150
"""The deadline of a request to an object store: less than a third of a simulated session."""
SHUT_DOWN_MS = 1_500
BOOT_MS_MAX = 300
"""Longest pause between the starts of two machines when power is back: less than a session."""
LED_MS_MAX = 5_000


def make_trouble(sim: SimCluster) -> None:
    """One trouble, drawn by the weights of the run."""
    weights = [sim.scheduler.faults.weights.get(name, 0) for name in TROUBLES]
    if any(weights):
        name = sim.scheduler.random.choices(TROUBLES, weights)[0]
        _MAKERS[name](sim)


def _any_host(sim: SimCluster) -> Host:
    return sim.scheduler.random.choice(list(sim.hosts.values()))


def _session(sim: SimCluster) -> str:
    sessions = sim.sessions_of()
    return sim.scheduler.random.choice(sessions).host if sessions else ""


def _duration(sim: SimCluster, least_ms: int, most_ms: int) -> int:
    return sim.scheduler.random.randrange(least_ms, most_ms)


def restart(sim: SimCluster, host: Host) -> None:
    sim.log_event(f"restart of broker {host.broker_id}")
    sim.start_host(host.broker_id)


def _crash_or_restart(sim: SimCluster) -> None:
    host = _any_host(sim)
    if host.broker is None:
        restart(sim, host)
    else:
        sim.crash(host.broker_id)


def _two_crash(sim: SimCluster) -> None:
    """One broker after another, in less than a session: the second one leaves the ISR after the election that the first
    one led to, and before the new leader has reported anything."""
    first, *others = sim.scheduler.random.sample(list(sim.hosts.values()), len(sim.hosts))
    for host in (first, *others[:1]):
        if host.broker is not None:
            sim.crash(host.broker_id)
            sim.scheduler.run_until(sim.scheduler.now_ms + _duration(sim, 50, 700))


def _restart_all(sim: SimCluster) -> None:
    for host in sim.hosts.values():
        if host.broker is None:
            restart(sim, host)


def _pause(sim: SimCluster, duration_ms: int, *names: str) -> None:
    for name in names:
        sim.pause(name, duration_ms)


def _cut(sim: SimCluster, duration_ms: int, *names: str) -> None:
    for name in names:
        sim.cut(name, METADATA_ROOT, duration_ms)


def _pause_broker(sim: SimCluster) -> None:
    """A zombie leader, perhaps also the controller."""
    host = _any_host(sim)
    _pause(sim, _duration(sim, 100, 3_000), host.process, host.controller)


def _pause_session(sim: SimCluster) -> None:
    _pause(sim, _duration(sim, 500, 5_000), _session(sim))


def _pause_controller(sim: SimCluster) -> None:
    """Two controllers: another one is elected when this one's broker is regarded as dead, and this one wakes."""
    host = _any_host(sim)
    duration_ms = _duration(sim, 300, 4_000)
    _pause(sim, duration_ms, host.controller)
    if sim.scheduler.random.random() < 0.5:
        _cut(sim, duration_ms, host.process)


def _cut_broker(sim: SimCluster) -> None:
    """The broker is regarded as dead, but leads on: a zombie with clients and followers."""
    host = _any_host(sim)
    _cut(sim, _duration(sim, 500, 4_000), host.process, host.controller)


def _cut_session(sim: SimCluster) -> None:
    _cut(sim, _duration(sim, 500, 4_000), _session(sim))


def _second_process(sim: SimCluster) -> None:
    """The process hangs, its supervisor starts another one; then the first one continues for a while."""
    host = _any_host(sim)
    if host.broker is None:
        return
    _pause(sim, _duration(sim, 50, 1_500), host.process, host.controller)
    host.zombies = [host.broker]
    restart(sim, host)


def _power_cut(sim: SimCluster) -> None:
    """The machine stops with its processes; unsynced files are lost. One machine at a time."""
    host = _any_host(sim)
    if sim.invariants.torn:
        return
    _stop_machine(sim, host)
    sim.log_event(f"power cut of broker {host.broker_id}")
    if sim.setting.is_durable:
        return
    sim.invariants.lost_power(host.broker_id)
    host.disk.power_cut(sim.scheduler.random)


def _stop_machine(sim: SimCluster, host: Host) -> None:
    """Its processes end at once, and its fetch tasks."""
    sim.crash(host.broker_id)
    host.zombies = []
    sim.scheduler.kill([actor for actor in list(sim.scheduler.actors) if _runs_on(actor.host, host.broker_id)])


def _power_cut_of_all(sim: SimCluster) -> None:
    """All brokers' machines lose power at once, and start again in any order; each disk keeps a tail of its own. There
    is no other fault until each partition is led, so that a log which any disk kept is found."""
    if sim.invariants.torn or sim.setting.is_durable:
        return
    random, hosts = sim.scheduler.random, list(sim.hosts.values())
    sim.log_event("power cut of all brokers")
    for host in hosts:
        _stop_machine(sim, host)
        sim.invariants.lost_power(host.broker_id)
        host.disk.power_cut(random, tears=False)
    sim.invariants.all_lost_power()
    sim.scheduler.end_faults()
    for host in random.sample(hosts, len(hosts)):
        restart(sim, host)
        sim.scheduler.run_until(sim.scheduler.now_ms + random.randrange(BOOT_MS_MAX))
    end_ms = sim.scheduler.now_ms + LED_MS_MAX
    sim.scheduler.run_until(end_ms, sim.invariants.is_led, poll_ms=20)
    sim.invariants.check_kept()
    sim.scheduler.faults.is_on = True


def _runs_on(name: str, broker_id: int) -> bool:
    return name.startswith((f"host-{broker_id}.", f"control-{broker_id}.", f"fetch-{broker_id}."))


def _disk_full(sim: SimCluster) -> None:
    host, duration_ms = _any_host(sim), _duration(sim, 200, 2_000)
    sim.log_event(f"the disk of broker {host.broker_id} is full for {duration_ms} ms")
    sim.scheduler.full_until_ms[host.root] = sim.scheduler.now_ms + duration_ms


def _slow_store(sim: SimCluster) -> None:
    root = sim.scheduler.random.choice([METADATA_ROOT, *(host.root for host in sim.hosts.values())])
    duration_ms = _duration(sim, 200, 1_500)
    sim.log_event(f"{root} is slow for {duration_ms} ms")
    sim.scheduler.slow_until_ms[root] = sim.scheduler.now_ms + duration_ms


def _black_hole(sim: SimCluster) -> None:
    """A broker's root answers nothing to anybody, for minutes: until the end of all faults, unless it returns before.
    A mount blocks its callers, a request to an object store ends with its deadline."""
    host, random = _any_host(sim), sim.scheduler.random
    duration_ms = random.choice([_duration(sim, 200, 3_000), _duration(sim, 60_000, 600_000)])
    deadline_ms = random.choice([None, REQUEST_MS])
    sim.log_event(f"{host.root} answers nothing for {duration_ms} ms")
    sim.scheduler.hang(host.root, duration_ms, deadline_ms)


def _clock_jump(sim: SimCluster) -> None:
    """The wall clock of one machine is set, or one of its fetch tasks runs on a machine with another one."""
    _set_clock(sim, sim.scheduler.random.randrange(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX))


def _clock_jumps_by_days(sim: SimCluster) -> None:
    """The wall clock of one machine is days off, as after a start without a battery; its monotonic clock goes on."""
    days = sim.scheduler.random.choice([-1, 1]) * sim.scheduler.random.randrange(1, DAYS_MAX + 1)
    _set_clock(sim, days * DAY_MS)


def _set_clock(sim: SimCluster, offset_ms: int) -> None:
    host = _any_host(sim)
    sim.log_event(f"the clock of broker {host.broker_id} is {offset_ms} ms off")
    for name in (host.process, host.controller, *(actor.host for actor in sim.sessions_of(host.broker_id))):
        sim.scheduler.wall_offset_ms[name] = offset_ms


def _machine_sleeps(sim: SimCluster) -> None:
    """Everything is paused; every clock has advanced when it wakes."""
    duration_ms = _duration(sim, 1_000, 12_000)
    sim.log_event(f"all sleep for {duration_ms} ms")
    sim.scheduler.now_ms += duration_ms
    sim.scheduler.woke_ms = sim.scheduler.now_ms


def _damage(sim: SimCluster) -> None:
    """A follower's table has an object that cannot be read: the table is dropped and copied again, while writers of the
    old one may be asleep."""
    host = _any_host(sim)
    for topic_partition, state in sim.invariants.partitions.items():
        files = host.disk.tables.get(str(topic_partition))
        if files is None or host.broker_id not in state.replicas or state.leader in (NO_LEADER, host.broker_id):
            continue
        sim.log_event(f"{topic_partition} of broker {host.broker_id} is damaged")
        files.objects.setdefault(DAMAGE_PATH, Damage("simulated: a commit decayed").to_json())


def _shut_down(sim: SimCluster) -> None:
    """A controlled shutdown, unless the broker dies first."""
    host = _any_host(sim)
    broker = host.broker
    if broker is None:
        return
    sim.log_event(f"controlled shutdown of broker {host.broker_id}")
    host.is_leaving = True
    sim.scheduler.run_until(sim.scheduler.now_ms + SHUT_DOWN_MS, lambda: sim.has_left(host), poll_ms=10)
    if isinstance(broker.stopped_by, BrokerNotAvailableError):
        sim.log_event(f"broker {host.broker_id} has shut down")
        sim.mark_clean(host, broker)


def _another_disk(sim: SimCluster) -> None:
    """The machine stops, at best after a controlled shutdown, and returns with an empty disk. One at a time."""
    stopped = [host for host in sim.hosts.values() if host.broker is None]
    host = sim.scheduler.random.choice(stopped) if stopped else _any_host(sim)
    if sim.invariants.torn:
        return
    if host.broker is not None:
        sim.crash(host.broker_id)
    host.zombies = []
    sim.scheduler.kill([actor for actor in list(sim.scheduler.actors) if _runs_on(actor.host, host.broker_id)])
    sim.log_event(f"the disk of broker {host.broker_id} is replaced by an empty one")
    sim.invariants.was_wiped(host.broker_id)
    sim.replace_disk(host.broker_id, ({}, {}))
    if sim.scheduler.random.random() < 0.5:
        restart(sim, host)


def _removed_table(sim: SimCluster) -> None:
    """The directory of a follower's replica is removed, whether its processes live or not. Another member of the ISR
    keeps its log. One replica of a partition at a time."""
    host, invariants = _any_host(sim), sim.invariants
    for topic_partition, state in invariants.partitions.items():
        if host.broker_id not in state.replicas or state.leader in (NO_LEADER, host.broker_id) or invariants.torn:
            continue
        if any(each == topic_partition for _, each in invariants.removed):
            continue
        if host.disk.tables.pop(str(topic_partition), None) is not None:
            sim.log_event(f"the directory of {topic_partition} of broker {host.broker_id} is removed")
            invariants.was_removed(host.broker_id, topic_partition)


def _metadata_power_cut(sim: SimCluster) -> None:
    """The machine of the metadata root and of all processes stops; the brokers' own disks lose nothing. The first
    process that opens the metadata root recovers its tail."""
    if sim.invariants.torn:
        return
    for host in sim.hosts.values():
        if host.broker is not None:
            sim.crash(host.broker_id)
        host.zombies = []
        sim.scheduler.kill([actor for actor in list(sim.scheduler.actors) if _runs_on(actor.host, host.broker_id)])
    sim.log_event("power cut of the metadata root")
    if not sim.setting.is_durable:
        sim.metadata_disk.power_cut(sim.scheduler.random)
        sim.recover_metadata()
    for host in sim.hosts.values():
        if sim.scheduler.random.random() < 0.7:
            restart(sim, host)


def _any_domain(sim: SimCluster) -> str:
    """One that topics are in."""
    names = list(DOMAIN_ROOTS) if sim.setting.moves else [DOMAIN]
    return DOMAIN_ROOTS[sim.scheduler.random.choice(names) if len(names) > 1 else DOMAIN]


def _cut_from_domain(sim: SimCluster) -> None:
    """A broker cannot reach the storage domain, in which others lead then, while it lives on."""
    host, random, domain = _any_host(sim), sim.scheduler.random, _any_domain(sim)
    sim.cut(host.process, domain, random.choice([_duration(sim, 200, 4_000), _duration(sim, 4_000, 30_000)]))


def _domain_away(sim: SimCluster) -> None:
    """The storage domain answers nothing, or slowly; its requests end with their deadline."""
    duration_ms, root = _duration(sim, 200, 3_000), _any_domain(sim)
    sim.log_event(f"{root} answers nothing for {duration_ms} ms")
    if sim.scheduler.random.random() < 0.5:
        sim.scheduler.hang(root, duration_ms, REQUEST_MS)
    else:
        sim.scheduler.slow_until_ms[root] = sim.scheduler.now_ms + duration_ms


_MAKERS: Mapping[str, Callable[[SimCluster], None]] = {
    "crash": _crash_or_restart,
    "restart all": _restart_all,
    "pause broker": _pause_broker,
    "pause session": _pause_session,
    "pause controller": _pause_controller,
    "cut broker": _cut_broker,
    "cut session": _cut_session,
    "second process": _second_process,
    "power cut": _power_cut,
    "disk full": _disk_full,
    "slow store": _slow_store,
    "black hole": _black_hole,
    "clock jump": _clock_jump,
    "machine sleeps": _machine_sleeps,
    "damage": _damage,
    "shut down": _shut_down,
    "another disk": _another_disk,
    POWER_CUT_OF_ALL: _power_cut_of_all,
    "removed table": _removed_table,
    "metadata power cut": _metadata_power_cut,
    DAYS: _clock_jumps_by_days,
    TWO_CRASH: _two_crash,
    CUT_DOMAIN: _cut_from_domain,
    DOMAIN_AWAY: _domain_away,
}
