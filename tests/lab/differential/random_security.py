"""Random requests of an administrator of users: ACLs and SCRAM credentials, as steps of a script. Pure: a seed is one
dialogue.

Not asked for, since docs/migrate-from-kafka.md lists them: ACLs of users and delegation tokens, and what Kafka
answers with UNKNOWN_SERVER_ERROR, such as an ACL for ANY operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.lab.differential.scripts import Step

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
RESOURCE_TYPES = (ANY, 2, 3, 4, 5)
"""Besides ANY: TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID."""
NAMES = ("conf-$run", "confidential-$run", "con", "*", "", "kafka-cluster")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:", "alice", "Group:all", "")
HOSTS = ("*", "10.0.0.1", "")
OPERATIONS = tuple(range(16))
USERS = ("carol-$run", "dave-$run", "")
MECHANISMS = (1, 2, 0, 9)
ITERATIONS = (4096, 8192, 16384, 4095, 16385, 0)


class RandomSecurity:
    """The steps of one dialogue."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.starts: dict[int, int] = {}
        """The start of each partition's log, as `RandomSteps` has it. Empty: these steps delete no records."""
        kinds: dict[Callable[[], Step], int] = {
            self._create: 8,
            self._describe: 8,
            self._delete: 4,
            self._alter_users: 5,
            self._describe_users: 4,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def steps(self, count: int) -> Iterator[Step]:
        """A step that deletes what earlier dialogues have left, then `count` random ones."""
        fields = {"filters": [self._filter(of_all=True)]}
        yield Step("what was left is deleted", "DeleteAcls", fields, keep="$run")
        for _ in range(count):
            (make,) = self._random.choices(self._kinds, self._weights)
            yield make()

    def learn(self, answer: Any) -> None:
        """Does nothing: no later step depends on an answer."""

    def _mostly(self, usual: tuple[Any, ...], strange: tuple[Any, ...]) -> Any:
        return self._random.choice(strange if self._random.random() < 0.08 else usual)

    def _create(self) -> Step:
        creations = []
        for _ in range(self._random.choices([1, 2, 3], [5, 2, 1])[0]):
            resource_type = self._random.choice((2, 3, 4, 5))
            name = "kafka-cluster" if resource_type == 4 and self._random.random() < 0.9 else None
            creations.append(
                {
                    "resourceType": resource_type,
                    "resourceName": name or self._mostly(NAMES[:4], NAMES),
                    "resourcePatternType": self._random.choice((LITERAL, LITERAL, PREFIXED)),
                    "principal": self._mostly(PRINCIPALS[:3], PRINCIPALS),
                    "host": self._mostly(HOSTS[:2], HOSTS),
                    "operation": self._random.choice(OPERATIONS[2:13]),
                    "permissionType": self._random.choice((2, 3)),
                }
            )
        return Step("ACLs are created", "CreateAcls", {"creations": creations})

    def _filter(self, *, of_all: bool = False) -> dict[str, Any]:
        random = self._random

        def some(values: tuple[Any, ...], any_value: Any) -> Any:
            return any_value if of_all or random.random() < 0.5 else random.choice(values)

        return {
            "resourceTypeFilter": some(RESOURCE_TYPES, ANY),
            "resourceNameFilter": some(NAMES[:5], "$null"),
            "patternTypeFilter": some((LITERAL, PREFIXED, MATCH, MATCH), ANY),
            "principalFilter": some(PRINCIPALS[:3], "$null"),
            "hostFilter": some(HOSTS[:2], "$null"),
            "operation": some(OPERATIONS[1:13], ANY),
            "permissionType": some((2, 3), ANY),
        }

    def _describe(self) -> Step:
        return Step("ACLs", "DescribeAcls", self._filter())

    def _delete(self) -> Step:
        filters = [self._filter() for _ in range(self._random.choices([1, 2], [3, 1])[0])]
        return Step("ACLs are deleted", "DeleteAcls", {"filters": filters})

    def _alter_users(self) -> Step:
        random = self._random
        upsertions = [
            {
                "name": self._mostly(USERS[:2], USERS),
                "mechanism": self._mostly(MECHANISMS[:2], MECHANISMS),
                "iterations": self._mostly(ITERATIONS[:3], ITERATIONS),
                "salt": self._mostly(("salt", "pepper"), ("",)),
                "saltedPassword": random.choice(("secret", "word")),
            }
            for _ in range(random.choice([0, 1, 1, 2]))
        ]
        deletions = [
            {"name": self._mostly(USERS[:2], USERS), "mechanism": self._mostly(MECHANISMS[:2], MECHANISMS)}
            for _ in range(random.choice([0, 0, 1, 2]))
        ]
        return Step("users", "AlterUserScramCredentials", {"deletions": deletions, "upsertions": upsertions})

    def _describe_users(self) -> Step:
        names = self._random.choice([USERS[:1], USERS[:2], USERS[:1] * 2, ("nobody-$run",), USERS])
        return Step("users", "DescribeUserScramCredentials", {"users": [{"name": name} for name in names]})
