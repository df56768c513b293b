"""A cluster in memory with topics, records, a group, an open transaction and two users, as the console asks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin
from stratalog.clients.client_view import ClientView
from stratalog.clients.console.application import Console, ConsoleSettings
from stratalog.clients.console.asker import AskedCluster, Asker
from stratalog.clients.console.doors import RootDoor
from stratalog.clients.console.question import REQUIRED, Question
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import (
    AclBinding,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from stratalog.replication.metadata.scram import ITERATIONS_DEFAULT, ScramMechanism, ScramUpsertion
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.records import TopicPartition
from tests.clients.console.schema_records import TOPIC, schema_records

NOW_MS = 1_900_000_000_000
SECRET_TOPIC, SECRET_GROUP, SECRET_ID = "hidden-payroll", "hidden-auditors", "hidden-ledger"
SECRET_VALUE = "hidden-salary-4711"
HIDDEN = "hidden-"
HOSTILE = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    "gnp\u202e.exe \u200b\u2066".encode(),
    b"\x1b[2J\x1b]0;title\x07",
    b"\xff\xfe\xc0\x80 bad UTF-8",
    b"{{ 7*7 }} {% raw %} ${7*7}",
    b"x" * 900_000,
)


@contextmanager
def filled_cluster() -> Iterator[OpenedCluster]:
    """One broker. What a user of few rights must not see has a name that begins with `hidden-`."""
    with InMemoryCluster.start_new(1) as cluster:
        admin = cluster.admin()
        for topic, partitions in (("orders", 2), ("hostile", 1), (SECRET_TOPIC, 1), (SCHEMAS_TOPIC, 1), (TOPIC, 1)):
            admin.create_topic(topic, partitions=partitions, retention_ms=-1)  # records are of 1970
        with cluster.producer() as producer:
            for n in range(30):
                producer.send(
                    "orders", key=f"customer-{n}", value=f"order {n}", partition=n % 2, timestamp_ms=1_000 + n
                )
            for value in HOSTILE:
                producer.send("hostile", key=value[:100], value=value, headers=[("<b>name</b>", value[:100])])
            producer.send(SECRET_TOPIC, key="hidden-key", value=SECRET_VALUE)
            schemas, records = schema_records()
            for named, text in schemas:
                producer.send(SCHEMAS_TOPIC, key=named, value=text)
            for key, value, headers in records:
                producer.send(TOPIC, key=key, value=value, headers=headers)
        opened = OpenedCluster(ClusterView(cluster), Admin(cluster), {})
        with opened.groups(5_000, changes=True) as asked:
            groups = GroupAdmin(asked, opened.view)
            offsets = {TopicPartition("orders", 0): 5, TopicPartition(SECRET_TOPIC, 0): 0}
            for group in ("billing", SECRET_GROUP):
                groups.alter_offsets(group, {named: OffsetAndMetadata(at) for named, at in offsets.items()})
        transactional = cluster.producer(transactional_id=SECRET_ID)
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.send(SECRET_TOPIC, value="hidden-in-a-transaction")
        transactional.flush()
        try:
            yield opened
        finally:
            transactional.abort_transaction()
            transactional.close()


def rule(
    principal: str, kind: ResourceType, name: str, operation: Operation = Operation.READ, pattern: str = "LITERAL"
) -> AclBinding:
    """An allow from any address."""
    return AclBinding(kind, name, PatternType(pattern), principal, "*", operation, Permission.ALLOW)


FEW_RIGHTS = (
    rule("User:bob", ResourceType.TOPIC, "orders"),
    rule("User:bob", ResourceType.GROUP, "billing"),
    rule("User:bob", ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE),
)
"""What Bob may: read one topic in one group, and see the brokers."""


def bob(cluster: AskedCluster) -> Asker:
    """A user of few rights."""
    return Asker(cluster, Principal("User:bob"), Authorizer(FEW_RIGHTS), NOW_MS)


def nobody(cluster: AskedCluster) -> Asker:
    """A user who may do nothing."""
    return Asker(cluster, Principal("User:nobody"), Authorizer(()), NOW_MS)


def everybody(cluster: AskedCluster) -> Asker:
    """A user who may do everything."""
    return Asker(cluster, Principal(), None, NOW_MS)


def password_of(user: str, password: str) -> ScramUpsertion:
    """A credential."""
    kind, salt = ScramMechanism.SHA_256, b"salt of a test"
    salted = kind.salted_password(password, salt, ITERATIONS_DEFAULT)
    return ScramUpsertion(user, kind.code, ITERATIONS_DEFAULT, salt, salted)


GUESSES: Mapping[str, tuple[str, ...]] = {
    "topic": (SECRET_TOPIC, "orders", "hostile", "absent"),
    "group": (SECRET_GROUP, "billing", "absent"),
    "transactional_id": (SECRET_ID, "absent"),
    "partition": ("0",),
    "offset": ("0",),
    "broker": ("1",),
    "subject": (f"{SECRET_TOPIC}-value", "orders-value", "absent"),
    "schema_id": ("1", "6", "999"),
    "text": ('"string"',),
    "sql": (f'SELECT * FROM "{SECRET_TOPIC}"', "SELECT * FROM topics", "SELECT * FROM group_offsets"),
}
"""What a curious user tries, by parameter."""


def attempts(question: Question) -> Iterator[dict[str, str]]:
    """Parameters with which a curious user asks: each guess, the rest by default or by its first guess."""
    needed = {
        name: GUESSES.get(name, ("0",))[0] for name, each in question.parameters.items() if each.default is REQUIRED
    }
    yield dict(needed)
    for name in question.parameters:
        for guess in GUESSES.get(name, ()):
            yield {**needed, name: guess}


class SettableClock(SystemClock):
    """Wall time that a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.moved_ms


class LostView:
    """A view whose cluster is out of reach as long as `is_lost`."""

    def __init__(self, view: ClientView) -> None:
        self._view = view
        self.is_lost = False
        self.error: Exception = StoreUnavailableError("the disk is gone")

    def refresh(self, max_age_ms: int = 0) -> bool:
        if self.is_lost:
            raise self.error
        return self._view.refresh(max_age_ms)

    def __getattr__(self, name: str) -> object:
        return getattr(self._view, name)


def console_of(
    cluster: AskedCluster,
    *,
    allow_changes: bool = False,
    super_users: tuple[str, ...] = (),
    is_secure: bool = False,
    host_names: frozenset[str] = frozenset({"testserver"}),
) -> tuple[Console, SettableClock]:
    """A console by the cluster's root."""
    clock = SettableClock()
    numbers = iter(range(1_000_000))
    settings = ConsoleSettings("the test's", allow_changes, is_secure, host_names)
    return Console(RootDoor(cluster, super_users), settings, clock, lambda: f"secret-{next(numbers)}"), clock
