"""Random reassignments and elections, as steps of a script. Pure: a seed is one dialogue.

After each change the reassignment is awaited, so that both clusters are at rest when they are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.lab.differential.scripts import Step

TOPIC = "moved-$run"
ASSIGNMENTS = [{"partitionIndex": 0, "brokerIds": [1, 2]}, {"partitionIndex": 1, "brokerIds": [2, 3, 1]}]
LISTS = ([1], [2], [3], [1, 2], [2, 1], [3, 1], [2, 3], [1, 2, 3], [3, 2, 1], [2, 3, 1])
BAD_LISTS = ([], [1, 1], [9], [1, 9], [-1, 2])
PREFERRED = 0


class RandomMoves:
    """The steps of one dialogue."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.starts: dict[int, int] = {}
        """The start of each partition's log, as `RandomSteps` has it. Empty: these steps delete no records."""
        self._kinds: dict[Callable[[], Step], int] = {self._move: 6, self._elect: 3, self._listed: 1}

    def steps(self, count: int) -> Iterator[Step]:
        """The step that creates the topic, then `count` random ones, each with what it has changed."""
        topic = {"name": TOPIC, "numPartitions": -1, "replicationFactor": -1, "assignments": ASSIGNMENTS}
        configs = [{"name": "min.insync.replicas", "value": "1"}]
        yield Step("a topic", "CreateTopics", {"timeoutMs": 30_000, "topics": [{**topic, "configs": configs}]})
        for _ in range(count):
            (make,) = self._random.choices(list(self._kinds), list(self._kinds.values()))
            yield make()
            fields: dict[str, Any] = {"timeoutMs": 30_000, "topics": "$null"}
            yield Step("reassignments are complete", "ListPartitionReassignments", fields, until=("topics", []))
            yield Step("the topic", "Metadata", {"topics": [{"name": TOPIC}]}, version=12)

    def learn(self, answer: Any) -> None:
        """Does nothing: no later step depends on an answer."""

    def _move(self) -> Step:
        random = self._random
        partitions = []
        for number in random.choice([[0], [1], [0, 1], [0, 7]]):
            replicas = random.choice(BAD_LISTS if random.random() < 0.2 else LISTS)
            partitions.append({"partitionIndex": number, "replicas": "$null" if random.random() < 0.1 else replicas})
        topics = [{"name": TOPIC if random.random() < 0.9 else "nowhere-$run", "partitions": partitions}]
        return Step("replicas are moved", "AlterPartitionReassignments", {"timeoutMs": 30_000, "topics": topics})

    def _elect(self) -> Step:
        random = self._random
        partitions = random.choice([[0], [1], [0, 1], [7]])
        topics = [{"topic": TOPIC, "partitions": partitions}]
        fields = {"electionType": PREFERRED, "topicPartitions": topics, "timeoutMs": 30_000}
        return Step("leaders are elected", "ElectLeaders", fields)

    def _listed(self) -> Step:
        topics = [{"name": self._random.choice([TOPIC, "nowhere-$run"]), "partitionIndexes": [0, 1, 7]}]
        return Step("reassignments", "ListPartitionReassignments", {"timeoutMs": 30_000, "topics": topics})
