"""The simulation's own observers: what they count on, and what they excuse."""

from __future__ import annotations

from stratalog.storage.files.damage import DAMAGE_PATH, Damage
from stratalog.storage.records import TopicPartition
from tests.simulation.clients import Consumer, Producer
from tests.simulation.cluster import TOPIC, Setting, SimCluster
from tests.simulation.faults import Faults
from tests.simulation.run import RETAINED, repeatable

PARTITION = TopicPartition(TOPIC, 0)


def _with_records(configs: tuple[tuple[str, str], ...]) -> SimCluster:
    """A cluster without faults whose topic has 60 committed records."""
    sim = SimCluster(1, Faults(), Setting(configs=configs))
    sim.set_up()
    sim.scheduler.faults.is_on = False
    producer = Producer(sim, 0, is_idempotent=True)

    def produce() -> None:
        while sim.invariants.acked_count < 60:
            for state in producer.partitions():
                producer.produce(state)

    sim.scheduler.spawn("p0", "client-p0", produce)
    end_ms = sim.scheduler.now_ms + 20_000
    sim.scheduler.run_until(end_ms, lambda: sim.invariants.acked_count >= 60, poll_ms=50)
    sim.scheduler.run_until(sim.scheduler.now_ms + 2_000)
    return sim


def test_a_damaged_member_of_the_isr_keeps_nothing_that_a_leader_must_have() -> None:
    with repeatable():
        sim = _with_records(())
        sim.invariants.all_lost_power()
        whole = len(sim.invariants.kept[PARTITION])
        for host in sim.hosts.values():
            host.disk.tables[str(PARTITION)].objects[DAMAGE_PATH] = Damage("decayed").to_json()
        sim.invariants.all_lost_power()
        assert (whole, sim.invariants.kept[PARTITION]) == (sim.invariants.acked_count, {})
        sim.scheduler.kill(list(sim.scheduler.actors))


def test_a_consumer_remembers_where_retention_moved_it_whatever_the_next_leaders_log_start_is() -> None:
    with repeatable():
        sim = _with_records(RETAINED)
        log = sim.invariants.log_id(PARTITION)
        assert log is not None
        shadow = sim.invariants.shadow(sim.invariants.partitions[PARTITION].leader, PARTITION)
        assert shadow is not None
        assert shadow.log_start > 0
        consumer = Consumer(sim)
        sim.scheduler.spawn("r0", "client-r0", consumer.run)
        sim.scheduler.run_until(
            sim.scheduler.now_ms + 5_000, lambda: consumer.positions.get(log, 0) >= shadow.log_end, poll_ms=50
        )
        assert consumer.was_moved_beyond(log, shadow.log_start - 1)
        assert not consumer.was_moved_beyond(log, shadow.log_end - 1)
        sim.scheduler.kill(list(sim.scheduler.actors))
