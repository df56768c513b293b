"""Random requests of a few producers, consumers and a group, as steps of a script. Pure: a seed is one dialogue.

What a request may say depends on Kafka's answers so far: sequence numbers, epochs, ends of logs. Wrong values are asked
for, too. Each step ends with what it changed: the markers of a transaction are awaited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.lab.differential.scripts import Step

TOPIC, TOPIC_ID, GROUP = "random-$run", "$topicId", "random-$run"
LEADERS = (1, 2)
"""The leader of each partition."""
ASSIGNMENTS = [{"partitionIndex": 0, "brokerIds": [1, 2, 3]}, {"partitionIndex": 1, "brokerIds": [2, 3, 1]}]
CONFIGS = {"retention.ms": "-1", "segment.ms": "9000000000000000"}
"""Records are not old, and one segment holds them all: Kafka looks for a time in the first segment alone that has seen
such a one, also where its records are deleted."""
TIME_MS_MAX = 40
"""Records have times below this, in ms: such small ones are compared, while times of now differ from run to run."""
TRANSACTION_VERSIONS = {1: (11, 3, 3), 2: (13, 5, 5)}
"""Versions of Produce, EndTxn and TxnOffsetCommit of a client without and with transaction.version 2."""


@dataclass(slots=True)
class Writer:
    """A producer.

    known_in  the partitions to which its producer id has written; elsewhere it begins with 0
    open_in   those to which it has written in its transaction: elsewhere it sends no lower sequence number again, since
              Kafka would refuse a later one that is next (`VerificationStateEntry.lowestSequence`)
    """

    number: int
    is_transactional: bool
    transaction_version: int = 1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    known_in: set[int] = field(default_factory=set)
    open_in: set[int] = field(default_factory=set)

    @property
    def producer_id(self) -> str:
        return f"$producer{self.number}"

    @property
    def transactional_id(self) -> str:
        return f"random-{self.number}-$run"

    @property
    def coordinator(self) -> str:
        return f"transaction {self.transactional_id}"


class RandomSteps:
    """The steps of one dialogue. After each one `learn` is told Kafka's answer."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._writers = [Writer(0, True, 1), Writer(1, True, 2), Writer(2, False)]
        self._ends = {0: 0, 1: 0}
        self.starts = {0: 0, 1: 0}
        """The start of each partition's log, as of the last deletion."""
        self._learn: Callable[[Any], None] = _nothing
        self._follows: list[Step] = []
        kinds: dict[Callable[[], Step], int] = {
            self._produce: 30,
            self._fetch: 16,
            self._list_offsets: 12,
            self._end: 9,
            self._add: 7,
            self._initialise: 4,
            self._add_offsets: 3,
            self._commit_in_transaction: 4,
            self._commit: 3,
            self._offsets: 5,
            self._delete_records: 3,
            self._epoch_end: 2,
            self._producers: 4,
            self._transactions: 3,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def steps(self, count: int) -> Iterator[Step]:
        """The steps that create the topic and its producers, then `count` random ones."""
        configs = [{"name": name, "value": value} for name, value in CONFIGS.items()]
        topic = {"name": TOPIC, "numPartitions": -1, "replicationFactor": -1, "assignments": ASSIGNMENTS}
        yield Step("a topic", "CreateTopics", {"timeoutMs": 30_000, "topics": [{**topic, "configs": configs}]})
        yield Step("its id", "Metadata", {"topics": [{"name": TOPIC}]}, version=12, save={"topicId": "topics*.topicId"})
        for writer in self._writers:
            yield self._initialised(writer)
        for _ in range(count):
            self._learn = _nothing
            (make,) = self._random.choices(self._kinds, self._weights)
            yield make()
            while self._follows:
                self._learn = _nothing
                yield self._follows.pop(0)

    def learn(self, answer: Any) -> None:
        """Take note of Kafka's answer to the last step."""
        self._learn(answer)

    # -- producers -----------------------------------------------------------------------------------------

    def _initialise(self) -> Step:
        return self._initialised(self._random.choice(self._writers))

    def _initialised(self, writer: Writer) -> Step:
        with_id = writer.epoch >= 0 and writer.is_transactional and self._random.random() < 0.4
        epoch = writer.epoch - (self._random.random() < 0.2) if with_id else -1
        fields = {
            "transactionalId": writer.transactional_id if writer.is_transactional else "$null",
            "transactionTimeoutMs": 60_000,
            "producerId": writer.producer_id if with_id else -1,
            "producerEpoch": epoch,
        }
        to: int | str = writer.coordinator if writer.is_transactional else 1

        def learn(answer: Any) -> None:
            if not answer["errorCode"]:
                writer.epoch = answer["producerEpoch"]
                writer.sequences.clear()
                writer.open_in.clear()
                if not writer.is_transactional:
                    writer.known_in.clear()

        self._learn = learn
        save = {} if with_id else {f"producer{writer.number}": "producerId"}
        return Step(f"producer {writer.number} is initialised", "InitProducerId", fields, to, save=save)

    def _produce(self) -> Step:
        random = self._random
        partition, values = random.randrange(2), [f"v{random.randrange(100)}" for _ in range(random.randint(1, 4))]
        writer = random.choice([*self._writers, None])
        records: dict[str, Any] = {"values": values, "time_ms": random.randrange(TIME_MS_MAX)}
        version, transactional_id = 13, "$null"
        if writer is not None:
            sequence = writer.sequences[partition]
            wrong = random.random()
            if partition not in writer.known_in:
                sequence = 0
            elif wrong < 0.12 and (partition in writer.open_in or not writer.is_transactional):
                sequence = max(0, sequence - random.randint(1, 5))
            elif wrong < 0.2:
                sequence += random.randint(1, 3)
            records |= {"producer_id": writer.producer_id, "base_sequence": sequence}
            records["producer_epoch"] = max(0, writer.epoch + random.choices([0, -1, 1], [90, 6, 4])[0])
            version = TRANSACTION_VERSIONS[writer.transaction_version][0]
            if writer.is_transactional:
                transactional_id = writer.transactional_id
                records["attributes"] = 0x10
        data = [{"index": partition, "records": records}]
        fields = {
            "acks": -1,
            "timeoutMs": 30_000,
            "transactionalId": transactional_id,
            "topicData": [{"name": TOPIC, "topicId": TOPIC_ID, "partitionData": data}],
        }

        def learn(answer: Any) -> None:
            told = answer["responses"][0]["partitionResponses"][0]
            if not told["errorCode"]:
                self._ends[partition] = max(self._ends[partition], told["baseOffset"] + len(values))
                if writer is not None:
                    writer.sequences[partition] = records["base_sequence"] + len(values)
                    writer.known_in.add(partition)
                    writer.open_in.add(partition)

        self._learn = learn
        title = f"{'anybody' if writer is None else f'producer {writer.number}'} produces to {partition}"
        return Step(title, "Produce", fields, LEADERS[partition], version=version)

    # -- transactions --------------------------------------------------------------------------------------

    def _transactional(self) -> Writer:
        return self._random.choice([each for each in self._writers if each.is_transactional])

    def _identity(self, writer: Writer) -> dict[str, Any]:
        epoch = max(0, writer.epoch + self._random.choices([0, -1, 1], [92, 5, 3])[0])
        return {
            "transactionalId": writer.transactional_id,
            "producerId": writer.producer_id,
            "producerEpoch": epoch,
        }

    def _add(self) -> Step:
        writer = self._writers[0]
        partitions = self._random.choice([[0], [1], [0, 1]])
        fields = self._identity(writer)
        topics = [{"name": TOPIC, "partitions": partitions}]
        old = {
            "v3AndBelowTransactionalId": fields["transactionalId"],
            "v3AndBelowProducerId": fields["producerId"],
            "v3AndBelowProducerEpoch": fields["producerEpoch"],
            "v3AndBelowTopics": topics,
        }

        return Step(
            "partitions are added",
            "AddPartitionsToTxn",
            {**fields, **old, "topics": topics},
            writer.coordinator,
            version=3,
        )

    def _end(self) -> Step:
        writer = self._transactional()
        committed = self._random.random() < 0.6
        version = TRANSACTION_VERSIONS[writer.transaction_version][1]
        state = "CompleteCommit" if committed else "CompleteAbort"

        def learn(answer: Any) -> None:
            if answer["errorCode"]:
                return
            writer.open_in.clear()
            if answer.get("producerEpoch", -1) >= 0 and writer.transaction_version == 2:
                writer.epoch = answer["producerEpoch"]
                writer.sequences.clear()
            self._follows.append(
                Step(
                    "its transaction has ended",
                    "DescribeTransactions",
                    {"transactionalIds": [writer.transactional_id]},
                    writer.coordinator,
                    until=("transactionStates*transactionState", state),
                )
            )

        self._learn = learn
        fields = {**self._identity(writer), "committed": committed}
        title = f"producer {writer.number} {'commits' if committed else 'aborts'}"
        return Step(title, "EndTxn", fields, writer.coordinator, version=version)

    def _transactions(self) -> Step:
        writer = self._transactional()
        fields = {"transactionalIds": [writer.transactional_id]}
        return Step("a transaction", "DescribeTransactions", fields, writer.coordinator)

    # -- offsets of a group --------------------------------------------------------------------------------

    def _add_offsets(self) -> Step:
        writer = self._writers[0]
        return Step(
            "a group is added",
            "AddOffsetsToTxn",
            {**self._identity(writer), "groupId": GROUP},
            writer.coordinator,
            version=3,
        )

    def _commit_in_transaction(self) -> Step:
        writer = self._transactional()
        fields = {
            **self._identity(writer),
            "groupId": GROUP,
            "generationId": -1,
            "memberId": "",
            "topics": self._committed(),
        }
        version = TRANSACTION_VERSIONS[writer.transaction_version][2]
        return Step(
            f"producer {writer.number} commits offsets", "TxnOffsetCommit", fields, f"group {GROUP}", version=version
        )

    def _commit(self) -> Step:
        fields = {"groupId": GROUP, "generationIdOrMemberEpoch": -1, "memberId": "", "topics": self._committed()}
        return Step("offsets are committed", "OffsetCommit", fields, f"group {GROUP}", version=9)

    def _committed(self) -> list[dict[str, Any]]:
        partition, offset = self._random.randrange(2), self._random.randrange(50)
        return [{"name": TOPIC, "partitions": [{"partitionIndex": partition, "committedOffset": offset}]}]

    def _offsets(self) -> Step:
        asked = {"groupId": GROUP, "topics": [{"name": TOPIC, "partitionIndexes": [0, 1]}]}
        fields = {"groups": [asked], "requireStable": self._random.random() < 0.5}
        return Step("offsets of the group", "OffsetFetch", fields, f"group {GROUP}", version=9, once=True)

    # -- readers -------------------------------------------------------------------------------------------

    def _fetch(self) -> Step:
        partition = self._random.randrange(2)
        offset = self._random.randint(0, self._ends[partition] + self._random.choices([0, 3], [9, 1])[0])
        size = self._random.choices([1_000_000, 1, 200], [8, 1, 1])[0]
        part = {
            "partition": partition,
            "fetchOffset": offset,
            "currentLeaderEpoch": -1,
            "lastFetchedEpoch": -1,
            "logStartOffset": -1,
            "partitionMaxBytes": size,
        }
        fields = {
            "replicaId": -1,
            "maxWaitMs": 10,
            "minBytes": 1,
            "maxBytes": 1_000_000,
            "isolationLevel": self._random.randrange(2),
            "sessionId": 0,
            "sessionEpoch": -1,
            "topics": [{"topic": TOPIC, "topicId": TOPIC_ID, "partitions": [part]}],
        }
        return Step(f"records of {partition} from {offset}", "Fetch", fields, LEADERS[partition])

    def _list_offsets(self) -> Step:
        partition = self._random.randrange(2)
        timestamp = self._random.choice([-1, -1, -2, -3, self._random.randrange(TIME_MS_MAX + 5)])
        if timestamp == -3 and self.starts[partition]:
            timestamp = -2  # Kafka tells a record that was deleted
        part = {"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": timestamp}
        fields = {
            "replicaId": -1,
            "isolationLevel": self._random.randrange(2),
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        return Step(f"the offset of {partition} for {timestamp}", "ListOffsets", fields, LEADERS[partition], version=8)

    def _delete_records(self) -> Step:
        partition = self._random.randrange(2)

        def learn(answer: Any) -> None:
            told = answer["topics"][0]["partitions"][0]
            self.starts[partition] = max(self.starts[partition], told["lowWatermark"])

        self._learn = learn
        end = self._ends[partition]
        offset = self._random.choices([self._random.randint(0, max(0, end // 2)), -1, end + 2], [6, 1, 1])[0]
        fields = {
            "timeoutMs": 30_000,
            "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": partition, "offset": offset}]}],
        }
        return Step(f"records of {partition} are deleted up to {offset}", "DeleteRecords", fields, LEADERS[partition])

    def _epoch_end(self) -> Step:
        partition = self._random.randrange(2)
        part = {"partition": partition, "currentLeaderEpoch": -1, "leaderEpoch": self._random.randrange(2)}
        fields = {"replicaId": -1, "topics": [{"topic": TOPIC, "partitions": [part]}]}
        return Step("the end of an epoch", "OffsetForLeaderEpoch", fields, LEADERS[partition])

    def _producers(self) -> Step:
        partition = self._random.randrange(2)
        fields = {"topics": [{"name": TOPIC, "partitionIndexes": [partition]}]}
        return Step(f"producers of {partition}", "DescribeProducers", fields, LEADERS[partition])


def _nothing(_answer: Any) -> None:
    """For a step whose answer no later step depends on."""
