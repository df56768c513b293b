"""One of three broker processes is stopped in order under Kafka's clients: no record is lost or doubled."""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import pairwise
from threading import Thread

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.lab.foreign.served import Form, Served
from tests.lab.real.harness.parties import Party
from tests.waiting import wait_until

TOPIC, PARTITIONS = "orders", 6
LONGEST_STOP_S = 10
PAUSE_S = 0.002


class NumberProducer(Party):
    """Sends 1, 2, 3, … with an idempotent producer, acks=all."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("producer")
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        self.sent = 0
        self.acknowledged_s: list[float] = []
        self.errors: list[Exception] = []

    def turn(self) -> None:
        self.sent += 1
        sending = self._producer.send(TOPIC, b"%d" % self.sent, key=b"%d" % self.sent)
        sending.add_callback(lambda _: self.acknowledged_s.append(time.monotonic()))
        sending.add_errback(self.errors.append)
        time.sleep(PAUSE_S)

    def finish(self) -> None:
        self._producer.flush(60)
        self._producer.close()


class GroupReader(Party):
    """Reads as the one member of a group, and commits."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("reader")
        self._consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
        )
        self.read: dict[int, list[tuple[int, int]]] = defaultdict(list)

    @property
    def count(self) -> int:
        return sum(map(len, list(self.read.values())))

    def turn(self) -> None:
        for records in self._consumer.poll(timeout_ms=200).values():
            for record in records:
                self.read[record.partition].append((record.offset, int(record.value)))

    def finish(self) -> None:
        self._consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [1, 2])
def test_a_broker_that_is_stopped_in_order_loses_and_doubles_nothing(stopped: int) -> None:
    with Served(Form.BROKERS) as served:
        admin = KafkaAdminClient(bootstrap_servers=served.bootstrap)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, topic_configs={"min.insync.replicas": "2"})])
        admin.close()
        reader = GroupReader(served.bootstrap)
        with reader, NumberProducer(served.bootstrap) as producer:
            wait_until(lambda: len(producer.acknowledged_s) > 300 and reader.count > 300)
            codes: list[int] = []
            stopping = Thread(target=lambda: codes.append(served.process(stopped).stop()))
            stopping.start()
            stopping.join()
            acknowledged = len(producer.acknowledged_s)
            wait_until(lambda: len(producer.acknowledged_s) > acknowledged + 300)
            producer.stop()
            wait_until(lambda: reader.count >= producer.sent, f"{producer.sent} records")
        assert codes == [0]
        assert producer.errors == []
        assert len(producer.acknowledged_s) == producer.sent
        numbers = sorted(number for read in reader.read.values() for _, number in read)
        assert numbers == list(range(1, producer.sent + 1))
        for read in reader.read.values():
            assert read == sorted(read)
            assert [number for _, number in read] == sorted(number for _, number in read)
        longest_s = max(after - before for before, after in pairwise(producer.acknowledged_s))
        print(f"longest time without an acknowledgement: {longest_s:.2f} s")
        assert longest_s < LONGEST_STOP_S
        log = (served.folder / f"broker-{stopped}" / "logs" / "server.log").read_text(encoding="utf-8")
        assert "shut down completed" in log
