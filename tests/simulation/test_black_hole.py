"""One storage domain that answers nothing for minutes: what the other brokers lead is acknowledged all the same."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.records import TopicPartition
from tests.simulation.clients import Producer
from tests.simulation.cluster import SESSION_MS, TOPIC, Setting, SimCluster
from tests.simulation.faults import Faults
from tests.simulation.run import quiet

PARTITIONS = 3
BEFORE_MS, HUNG_MS, SEEN_MS = 1_000, 600_000, 9_000
PAUSE_MS_MAX = SESSION_MS
"""Longest pause of acknowledgements: the broker notices that its own root is dead, and fences itself."""
CLIENT_WAIT_MS_MAX = 3_000
"""Longest wait of a simulated producer for the answer of a leader that hangs, before it asks another one."""
GAP_MS_MAX = 600
"""Longest time without an acknowledgement of a partition from then on."""
REQUEST_MS = 250
"""The deadline of a request to an object store."""


class PartitionProducer(Producer):
    """Writes to one partition, so that a leader that hangs keeps no producer of another partition waiting."""

    def __init__(self, sim: SimCluster, number: int) -> None:
        super().__init__(sim, number, is_idempotent=True)
        self._partition = number % PARTITIONS

    def partitions(self) -> list[PartitionRecord]:
        return [state for state in super().partitions() if state.partition == self._partition]


def acks_ms(sim: SimCluster) -> dict[TopicPartition, list[int]]:
    """When records of each partition were acknowledged."""
    found: dict[TopicPartition, list[int]] = {TopicPartition(TOPIC, number): [] for number in range(PARTITIONS)}
    for line in sim.event_log:
        at_ms, _, event, name, *_ = [*line.split(), "", ""]
        if event == "ack":
            found[TopicPartition(TOPIC, int(name.rpartition("-")[2]))].append(int(at_ms))
    return found


def longest_gap_ms(times_ms: list[int], begin_ms: int, end_ms: int) -> int:
    inside = [begin_ms, *(at_ms for at_ms in times_ms if begin_ms < at_ms < end_ms), end_ms]
    return max(late - early for early, late in pairwise(inside))


@pytest.mark.parametrize(
    ("dead", "notifies", "deadline_ms"),
    [(1, True, None), (2, False, REQUEST_MS), (3, True, REQUEST_MS)],
    ids=["1 mount", "2 polled object store", "3 object store"],
)
def test_acknowledgements_pause_for_a_session_and_then_flow(dead: int, notifies: bool, deadline_ms: int | None) -> None:
    faults = Faults(switch=0.2, park=0.0, lost_request=0.0, lost_answer=0.0)
    setting = Setting(
        partitions=PARTITIONS, configs=(("min.insync.replicas", "2"),), notifies=notifies, pause_ms_max=40
    )
    sim = SimCluster(dead, faults, setting)
    with quiet():
        sim.set_up()
        for number in range(2 * PARTITIONS):
            sim.scheduler.spawn(f"p{number}", f"client-p{number}", PartitionProducer(sim, number).run)
        sim.scheduler.run_until(sim.scheduler.now_ms + BEFORE_MS)
        begin_ms = sim.scheduler.now_ms
        led = {tp for tp, state in sim.invariants.partitions.items() if state.leader == dead}
        sim.scheduler.hang(sim.hosts[dead].root, HUNG_MS, deadline_ms)
        sim.scheduler.run_until(begin_ms + SEEN_MS)
        sim.scheduler.kill(list(sim.scheduler.actors))
    for topic_partition, times_ms in acks_ms(sim).items():
        pause_ms_max = PAUSE_MS_MAX + (CLIENT_WAIT_MS_MAX if topic_partition in led else 0)
        again_ms = min((at_ms for at_ms in times_ms if at_ms > begin_ms + SESSION_MS // 2), default=begin_ms + SEEN_MS)
        pause_ms = again_ms - begin_ms
        assert pause_ms <= pause_ms_max, f"{topic_partition}: no acknowledgement for {pause_ms} ms"
        assert dead not in sim.invariants.live, "it registers when its root answers, not before"
        gap_ms = longest_gap_ms(times_ms, begin_ms + pause_ms_max, begin_ms + SEEN_MS)
        assert gap_ms <= GAP_MS_MAX, f"{topic_partition}: {gap_ms} ms without an acknowledgement"
