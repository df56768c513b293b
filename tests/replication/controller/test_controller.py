"""The controller's loop: when it looks at the balance of leaders, and what it writes into the state change log."""

from __future__ import annotations

import logging

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.controller import Controller
from stratalog.replication.controller.sessions import encode_session, session_path
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import FenceBrokerRecord, RegisterBrokerRecord
from stratalog.replication.stores import Ports
from stratalog.storage.objects.distance import FAR, NEAR, Distance
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by, register

STATE_CHANGES = "stratalog.state.change"


def candidate(
    stores: MemoryStores, broker_id: int, incarnation_id: str, config: BrokerConfig | None = None
) -> Controller:
    ports = Ports(stores, stores.clock, stores.ids)
    return Controller(broker_id, incarnation_id, config or BrokerConfig(), METADATA_ROOT, ports)


class Controlling:
    """Broker 1 is the controller of brokers 1 and 2, whose sessions go on."""

    def __init__(self, *, distance: Distance = NEAR, **settings: object) -> None:
        self.stores = MemoryStores()
        self.stores.objects(METADATA_ROOT).distance = distance
        self.metadata: MetadataLog = self.stores.metadata()
        for broker_id in (1, 2):
            register(self.metadata, broker_id, broker_id)
        config = BrokerConfig.from_properties(settings)
        self.controller = candidate(self.stores, 1, "run-1", config)
        self._beat = 0
        self.pass_ms(0)
        assert self.controller.epoch == 1

    def pass_ms(self, duration_ms: int) -> None:
        """Time passes, in steps of the controller's."""
        end_ms = self.stores.clock.now_ms + duration_ms
        is_first = True
        while is_first or self.stores.clock.now_ms < end_ms:
            is_first = False
            self.stores.clock.now_ms += self.controller.poll_interval_ms if duration_ms else 0
            self._beat += 1
            for broker_id in (1, 2):
                content = encode_session(broker_id, f"run-{broker_id}", self._beat)
                self.stores.objects(METADATA_ROOT).put_register(session_path(broker_id), content)
            self.controller.step()

    def leader(self) -> int:
        self.metadata.refresh()
        return next(iter(self.metadata.image.partitions.values())).leader


@pytest.mark.parametrize(("distance", "polls"), [(NEAR, [12, 12, 12]), (FAR, [12, 6, 24])])
def test_where_polls_are_paid_quiet_sessions_are_polled_less_and_late_ones_more(
    distance: Distance, polls: list[int]
) -> None:
    controlling = Controlling(distance=distance)
    intervals_ms = [controlling.controller.poll_interval_ms]
    controlling.pass_ms(60_000)
    intervals_ms.append(controlling.controller.poll_interval_ms)
    assert not controlling.controller.expects_changes
    controlling.stores.clock.now_ms += 3_000
    controlling.controller.step()
    intervals_ms.append(controlling.controller.poll_interval_ms)
    assert controlling.controller.expects_changes
    assert intervals_ms == [9_000 // each for each in polls]


def test_a_session_in_an_object_store_expires_when_its_time_is_over() -> None:
    """The controller polls at that time, so that the broker is not fenced up to a pause later."""
    controlling = Controlling(distance=FAR, **{"broker.session.timeout.ms": 10_000})
    controlling.pass_ms(60_000)
    clock, store = controlling.stores.clock, controlling.stores.objects(METADATA_ROOT)
    silent_ms = clock.now_ms
    while 2 in controlling.controller.metadata.image.live_brokers():
        clock.now_ms += controlling.controller.poll_interval_ms
        store.put_register(session_path(1), encode_session(1, "run-1", clock.now_ms))
        controlling.controller.step()
    assert clock.now_ms == silent_ms + 10_000


def led_by_the_second(controlling: Controlling) -> None:
    create(controlling.metadata, "t", led_by(2, replicas=(1, 2)))


def test_leadership_is_given_back_once_the_interval_is_over() -> None:
    controlling = Controlling(**{"leader.imbalance.check.interval.seconds": 60})
    led_by_the_second(controlling)
    controlling.pass_ms(55_000)
    assert controlling.leader() == 2
    controlling.pass_ms(6_000)
    assert controlling.leader() == 1


@pytest.mark.parametrize(
    "settings", [{"auto.leader.rebalance.enable": False}, {"leader.imbalance.per.broker.percentage": 100}]
)
def test_it_is_not_where_that_is_not_wanted(settings: dict[str, object]) -> None:
    controlling = Controlling(**{"leader.imbalance.check.interval.seconds": 60, **settings})
    led_by_the_second(controlling)
    controlling.pass_ms(130_000)
    assert controlling.leader() == 2


def test_the_settings_are_kafkas() -> None:
    config = BrokerConfig()
    assert config.auto_leader_rebalance_enable
    assert config.leader_imbalance_check_interval_seconds == 300
    assert config.leader_imbalance_per_broker_percentage == 10


def test_it_writes_every_transition_whoever_committed_it(caplog: pytest.LogCaptureFixture) -> None:
    controlling = Controlling()
    with caplog.at_level(logging.INFO, STATE_CHANGES):
        led_by_the_second(controlling)  # an admin client, elsewhere
        controlling.pass_ms(1_000)
    who = "[Controller id=1 epoch=1]"
    state = '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[1,2]}'
    assert [record.getMessage() for record in caplog.records] == [
        f"{who} Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2",
        f"{who} Changed partition t-0 from NewPartition to OnlinePartition with state {state}",
    ]


def test_replicas_are_told_of_at_debug_as_kafka_does_at_trace(caplog: pytest.LogCaptureFixture) -> None:
    controlling = Controlling()
    led_by_the_second(controlling)
    controlling.pass_ms(1_000)
    with caplog.at_level(logging.DEBUG, STATE_CHANGES):
        commit(controlling.metadata, led_by(2, replicas=(2,), epoch=1))
        controlling.pass_ms(1_000)
    debug = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert debug[0].endswith("Changed state of replica 1 for partition t-0 from OnlineReplica to OfflineReplica")
    assert debug[-1].endswith("from ReplicaDeletionSuccessful to NonExistentReplica")


def test_a_candidate_that_is_not_the_controller_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    controlling = Controlling()
    other = candidate(controlling.stores, 2, "run-2")
    with caplog.at_level(logging.DEBUG, STATE_CHANGES):
        led_by_the_second(controlling)
        other.step()
    assert other.metadata.image.topic_ids == {"t": "id"}
    assert caplog.records == []


def test_the_controller_of_a_process_that_was_replaced_leaves_the_office_to_its_successor_for_good() -> None:
    """The broker's first process hangs, another one registers in its place, and the first one's controller goes on."""
    controlling = Controlling()
    first, stores = controlling.controller, controlling.stores
    record = RegisterBrokerRecord(1, 3, "run-again", "broker-1")
    commit(controlling.metadata, record)
    second = candidate(stores, 1, "run-again")
    second.step()
    assert second.epoch == 2, "its own broker's earlier life is not waited for"
    for _ in range(3):
        first.step()
        second.step()
        assert (first.epoch, second.epoch) == (None, 2)
    commit(controlling.metadata, FenceBrokerRecord(1, 3))
    second.step()
    assert second.epoch is None, "nor is a fenced broker's controller one"
