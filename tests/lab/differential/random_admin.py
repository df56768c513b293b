"""Random requests of an administrator, as steps of a script: topics, their configs, quotas. Pure: a seed is one
dialogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.lab.differential.scripts import Step

TOPICS = ("first-$run", "second-$run")
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
NUMBERS = ("-2", "-1", "0", "1", "2", "100", "5000", "1048576", "2147483647", "2147483648", "9223372036854775807")
NO_NUMBERS = ("", " ", "x", "1.5", " 7 ", "0x10", "1_000", "+3", "1e3", "9223372036854775808")
VALUES: dict[str, tuple[str, ...]] = {
    "cleanup.policy": (
        "compact",
        "delete",
        "compact,delete",
        "delete, compact",
        "",
        "none",
        "Compact",
        "delete,delete",
    ),
    "compression.type": ("gzip", "producer", "uncompressed", "none", "ZSTD", ""),
    "compression.gzip.level": ("-1", "0", "1", "9", "10"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.zstd.level": ("-131072", "-131073", "22", "23", "0"),
    "delete.retention.ms": NUMBERS,
    "file.delete.delay.ms": NUMBERS,
    "flush.messages": NUMBERS,
    "flush.ms": NUMBERS,
    "index.interval.bytes": NUMBERS,
    "max.compaction.lag.ms": NUMBERS,
    "max.message.bytes": NUMBERS,
    "message.timestamp.after.max.ms": NUMBERS,
    "message.timestamp.before.max.ms": NUMBERS,
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", ""),
    "min.cleanable.dirty.ratio": ("0", "0.5", "1", "1.01", "-0.1", "half", ".5", "1e-1"),
    "min.compaction.lag.ms": NUMBERS,
    "min.insync.replicas": NUMBERS,
    "preallocate": ("true", "false", "TRUE", " true ", "yes", ""),
    "retention.bytes": NUMBERS,
    "retention.ms": NUMBERS,
    "segment.bytes": NUMBERS[-4:],
    "segment.index.bytes": NUMBERS,
    "segment.jitter.ms": NUMBERS,
    "segment.ms": NUMBERS,
    "unclean.leader.election.enable": ("true", "false", "maybe"),
    "leader.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "", "0", "a:b", "0:1:2", "none"),
    "follower.replication.throttled.replicas": ("*", "0:1", "0:1,1:2", "", "0", "a:b"),
    "no.such.config": ("1",),
}
LISTS = ("cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "no_such_rate")


class RandomAdmin:
    """The steps of one dialogue."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.starts: dict[int, int] = {}
        """The start of each partition's log, as `RandomSteps` has it. Empty: these steps delete no records."""
        kinds: dict[Callable[[], Step], int] = {
            self._alter: 14,
            self._alter_all: 3,
            self._describe: 8,
            self._create: 6,
            self._grow: 3,
            self._quota: 3,
            self._quotas: 2,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def steps(self, count: int) -> Iterator[Step]:
        """The steps that create two topics, then `count` random ones."""
        for name in TOPICS:
            topics = [{"name": name, "numPartitions": 1, "replicationFactor": 3}]
            yield Step("a topic", "CreateTopics", {"timeoutMs": 30_000, "topics": topics})
        for _ in range(count):
            (make,) = self._random.choices(self._kinds, self._weights)
            yield make()

    def learn(self, answer: Any) -> None:
        """Does nothing: no later step depends on an answer."""

    def _topic(self) -> str:
        return self._random.choice(TOPICS)

    def _config(self) -> tuple[str, str]:
        name = self._random.choice(sorted(VALUES))
        values = VALUES[name]
        if values is NUMBERS and self._random.random() < 0.3:
            values = NO_NUMBERS
        return name, self._random.choice(values)

    def _alter(self) -> Step:
        count = self._random.choices([1, 2, 3], [6, 2, 1])[0]
        configs: list[dict[str, Any]] = []
        for name, value in dict(self._config() for _ in range(count)).items():
            operation = self._random.choices([SET, DELETE, APPEND, SUBTRACT], [7, 2, 1, 1])[0]
            if name in LISTS and self._random.random() < 0.5:
                operation = self._random.choice([APPEND, SUBTRACT])
            configs.append(
                {"name": name, "configOperation": operation, "value": "$null" if operation == DELETE else value}
            )
        fields = {
            "resources": [{"resourceType": TOPIC_RESOURCE, "resourceName": self._topic(), "configs": configs}],
            "validateOnly": self._random.random() < 0.3,
        }
        return Step(_names(configs), "IncrementalAlterConfigs", fields)

    def _alter_all(self) -> Step:
        configs = [{"name": name, "value": value} for name, value in dict([self._config(), self._config()]).items()]
        fields = {
            "resources": [{"resourceType": TOPIC_RESOURCE, "resourceName": self._topic(), "configs": configs}],
            "validateOnly": self._random.random() < 0.3,
        }
        return Step(_names(configs), "AlterConfigs", fields)

    def _describe(self) -> Step:
        names = sorted(VALUES.keys() - {"no.such.config"})
        resource = {"resourceType": TOPIC_RESOURCE, "resourceName": self._topic(), "configurationKeys": names}
        return Step("configs", "DescribeConfigs", {"resources": [resource], "includeSynonyms": False})

    def _create(self) -> Step:
        """CreateTopics with `validateOnly`, so that a valid request leaves no topic behind."""
        random = self._random
        topic: dict[str, Any] = {
            "name": random.choice(["third-$run", "third-$run", TOPICS[0], "no topic", "a" * 250]),
            "numPartitions": random.choice([-1, 1, 3, 0, -2]),
            "replicationFactor": random.choice([-1, 1, 3, 0, 4]),
        }
        if random.random() < 0.4:
            topic |= {"numPartitions": -1, "replicationFactor": -1, "assignments": self._assignments()}
        if random.random() < 0.5:
            topic["configs"] = [{"name": name, "value": value} for name, value in [self._config()]]
        fields = {"timeoutMs": 30_000, "topics": [topic], "validateOnly": True}
        return Step("a topic is checked", "CreateTopics", fields)

    def _assignments(self) -> list[dict[str, Any]]:
        some = self._random.choice([[[1]], [[1, 2], [2, 3]], [[1], [2, 3]], [[1, 1]], [[9]], [[]], [[3, 2, 1]] * 2])
        first = self._random.choice([0, 0, 0, 1])
        return [{"partitionIndex": first + number, "brokerIds": brokers} for number, brokers in enumerate(some)]

    def _grow(self) -> Step:
        random = self._random
        topic: dict[str, Any] = {
            "name": random.choice([self._topic(), "nowhere-$run"]),
            "count": random.choice([-1, 0, 1, 2, 3]),
            "assignments": "$null",
        }
        if random.random() < 0.5:
            lists = random.choice([[[1, 2, 3]], [[1]], [[1, 2, 2]], [[1, 2, 9]], [[3, 2, 1], [1, 2, 3]], []])
            topic["assignments"] = [{"brokerIds": brokers} for brokers in lists]
        fields = {"timeoutMs": 30_000, "topics": [topic], "validateOnly": True}
        return Step("partitions are checked", "CreatePartitions", fields)

    def _entity(self) -> list[dict[str, str]]:
        random = self._random
        names = {"user": "user-$run", "client-id": "client-$run", "ip": "127.0.0.9", "planet": "x"}
        kinds = random.choice([["user"], ["client-id"], ["user", "client-id"], ["user", "ip"], ["planet"], []])
        return [
            {"entityType": kind, "entityName": names[kind] if kind == kinds[0] or random.random() < 0.8 else "$null"}
            for kind in kinds  # no default alone: it would hold for these requests, too
        ]

    def _quota(self) -> Step:
        random = self._random
        value = random.choice([1024.0, 1.5, 0.0, -1.0, 1e12])
        ops = [{"key": random.choice(QUOTAS), "value": value, "remove": random.random() < 0.3}]
        fields = {"entries": [{"entity": self._entity(), "ops": ops}], "validateOnly": random.random() < 0.3}
        return Step("a quota", "AlterClientQuotas", fields)

    def _quotas(self) -> Step:
        random = self._random
        components = [
            {"entityType": "user", "matchType": 0, "match": "user-$run"},
            {"entityType": "client-id", "matchType": random.choice([0, 3]), "match": "client-$run"},
            {"entityType": "client-id", "matchType": 2, "match": "$null"},
        ]
        fields = {"components": random.choice([components[:1], components[:2], [components[0], components[2]]])}
        return Step("quotas", "DescribeClientQuotas", {**fields, "strict": random.random() < 0.5})


def _names(configs: list[dict[str, Any]]) -> str:
    return ", ".join(config["name"] for config in configs)
