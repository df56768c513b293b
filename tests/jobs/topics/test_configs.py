"""The configs tool: which flags go together, what it alters, and Kafka's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.topics.configs import entities_of, main, parse_added
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.configs import record_cluster_wide_configs
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.admin.configs import cluster_configs
from tests.clients.still_cluster import StillCluster


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    made = StillCluster(tmp_path)
    made.create_topic("t", 1)
    made.metadata.propose(lambda image: record_cluster_wide_configs(image, BrokerConfig(num_partitions=2)))
    return made


def call(cluster: StillCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = main(["--root", cluster.root, *arguments])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1, b = 2", {"a": "1", "b": "2"}),
        ("cleanup.policy=[compact,delete],retention.ms=5", {"cleanup.policy": "compact,delete", "retention.ms": "5"}),
        ("a=", {"a": ""}),
    ],
)
def test_added_configs_are_read_as_kafka_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_added(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1,b", "a=1=2", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid entity config"):
        parse_added(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--describe", "--topic", "t"],
        ["--describe", "--entity-type", "topics"],
        ["--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"],
        ["--describe", "--broker-defaults"],
        ["--describe", "--entity-type", "users"],
        ["--describe", "--entity-type", "groups"],
        ["--describe", "--entity-type", "clients", "--entity-type", "users"],
        ["--alter", "--user-defaults", "--client", "etl", "--add-config", "producer_byte_rate=1"],
        ["--alter", "--group", "g", "--add-config", "a=b"],
        ["--alter", "--user", "alice", "--delete-config", "SCRAM-SHA-256"],
        ["--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "a=b"],
        ["--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "a"],
        ["--alter", "--topic", "t", "--add-config-file", "f", "--delete-config", "a"],
    ],
)
def test_flags_that_go_together(arguments: list[str]) -> None:
    entities_of(main.checked(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --describe, --alter"),
        (["--describe", "--alter", "--topic", "t"], "exactly one action"),
        (["--describe"], "At least one entity type must be specified"),
        (["--describe", "--topic", "t", "--broker", "1"], "Only 'users' and 'clients' entity types may be specified"),
        (["--describe", "--entity-type", "ips"], "Entity type 'ips' has no configs here"),
        (["--describe", "--user", "alice", "--topic", "t"], "Only 'users' and 'clients' entity types"),
        (["--describe", "--user", "alice", "--user-defaults"], "Duplicate entity type\\(s\\) specified: users"),
        (["--describe", "--user", "alice", "--entity-type", "clients"], "should not be used in conjunction"),
        (["--describe", "--entity-name", "a", "--entity-type", "users", "--entity-default"], "More entity names"),
        (["--alter", "--entity-type", "users", "--add-config", "a=b"], "an entity-name or default entity must be"),
        (["--describe", "--entity-type", "cats"], "Invalid entity type cats"),
        (["--describe", "--broker", "one"], "must be a valid integer broker id, but it is: one"),
        (
            ["--describe", "--entity-type", "topics", "--entity-default"],
            "stands for clients, users or brokers, not for",
        ),
        (["--describe", "--topic", "t", "--add-config", "a=b"], "go with --alter only"),
        (
            ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
            "an entity-name or default entity must be specified with --alter of topics",
        ),
        (["--alter", "--broker", "1", "--add-config", "a=b"], "Settings are altered for all brokers"),
        (["--alter", "--topic", "t"], "At least one of --add-config, --add-config-file, or --delete-config"),
        (
            ["--alter", "--topic", "t", "--add-config", "a=b", "--add-config-file", "f"],
            "Only one of --add-config or --add-config-file must be specified",
        ),
    ],
)
def test_flags_that_do_not(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        entities_of(main.checked(arguments))


def test_a_topics_configs_are_altered_and_described(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    added = ("--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]")
    assert call(cluster, capsys, "--alter", "--topic", "t", *added) == (
        0, ["Completed updating config for topic t."], "",
    )  # fmt: skip
    assert call(cluster, capsys, "--describe", "--topic", "t")[1] == [
        "Dynamic configs for topic t are:",
        (
            "  cleanup.policy=compact,delete sensitive=false "
            "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}"
        ),
        (
            "  retention.ms=3600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=3600000, "
            "DEFAULT_CONFIG:log.retention.hours=168}"
        ),
    ]
    everything = call(cluster, capsys, "--describe", "--topic", "t", "--all")[1]
    assert everything[0] == "All configs for topic t are:"
    assert (
        "  flush.ms=9223372036854775807 sensitive=false "
        "synonyms={DEFAULT_CONFIG:log.flush.scheduler.interval.ms=9223372036854775807}" in everything
    )
    (tmp_path / "added.properties").write_text("segment.ms = 60000\n")
    changes = ("--add-config-file", str(tmp_path / "added.properties"), "--delete-config", "cleanup.policy")
    assert call(cluster, capsys, "--alter", "--topic", "t", *changes)[0] == 0
    cluster.metadata.refresh()
    assert cluster.metadata.image.topic_config("t") == {"retention.ms": "3600000", "segment.ms": "60000"}


def test_shared_settings_are_altered_for_all_brokers(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = ("--entity-type", "brokers")
    altered = call(cluster, capsys, "--alter", *brokers, "--entity-default", "--add-config", "num.partitions=6")
    assert altered == (0, ["Completed updating default config for brokers in the cluster."], "")
    line = (
        "  num.partitions=6 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.partitions=6, "
        "STATIC_BROKER_CONFIG:num.partitions=2, DEFAULT_CONFIG:num.partitions=1}"
    )
    assert call(cluster, capsys, "--describe", "--broker-defaults")[1] == [
        "Default configs for brokers in the cluster are:",
        line,
    ]
    heads = [each for each in call(cluster, capsys, "--describe", *brokers)[1] if not each.startswith(" ")]
    assert heads == [
        "Dynamic configs for broker 1 are:",
        "Dynamic configs for broker 2 are:",
        "Default configs for brokers in the cluster are:",
    ]
    everything = call(cluster, capsys, "--describe", "--broker", "2", "--all")[1]
    assert everything[0] == "All configs for broker 2 are:"
    assert line in everything
    assert sum("=" in each for each in everything) == len(list(cluster_configs(ClusterImage())))
    assert call(cluster, capsys, "--alter", "--broker-defaults", "--delete-config", "num.partitions")[0] == 0
    cluster.metadata.refresh()
    assert cluster.metadata.image.cluster_config("num.partitions", "1") == "2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t", "--add-config", "no.such=1"], "INVALID_CONFIG: Unknown topic config name: no.such"),
        (["--topic", "t", "--add-config", "segment.ms=0"], "Invalid value 0 for configuration segment.ms"),
        (["--topic", "t", "--delete-config", "segment.ms"], "INVALID_CONFIG: Invalid config(s): segment.ms"),
        (["--topic", "other", "--add-config", "segment.ms=1"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["--group", "g", "--add-config", "consumer.session.timeout.ms=1"], "group.consumer.min.session.timeout.ms"),
        (["--group", "g", "--add-config", "session.timeout.ms=1"], "Unknown group config name: session.timeout.ms"),
        (["--group", "g", "--delete-config", "consumer.session.timeout.ms"], "Invalid config(s): consumer.session"),
        (["--broker-defaults", "--add-config", "log.dir=x"], "Cannot update these configs dynamically: log.dir"),
        (["--broker-defaults", "--delete-config", "num.partitions"], "Invalid config(s): num.partitions"),
    ],
)
def test_a_refused_change_changes_nothing(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    end = cluster.metadata.log.log_end_offset
    code, lines, error = call(cluster, capsys, "--alter", *arguments)
    assert (code, lines) == (1, [])
    assert message in error
    cluster.metadata.refresh()
    assert cluster.metadata.log.log_end_offset == end


def test_a_groups_configs_are_altered_and_described(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    groups = ("--entity-type", "groups")
    added = ("--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000")
    altered = call(cluster, capsys, "--alter", *groups, "--entity-name", "g", *added)
    assert altered == (0, ["Completed updating config for group g."], "")
    changes = ("--add-config", "consumer.heartbeat.interval.ms=7000", "--delete-config", "consumer.session.timeout.ms")
    assert call(cluster, capsys, "--alter", "--group", "g", *changes)[0] == 0
    shown = call(cluster, capsys, "--describe", *groups)[1]
    assert shown == [
        "Dynamic configs for group g are:",
        (
            "  consumer.heartbeat.interval.ms=7000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:"
            "consumer.heartbeat.interval.ms=7000, DEFAULT_CONFIG:consumer.heartbeat.interval.ms=5000}"
        ),
    ]
    everything = call(cluster, capsys, "--describe", "--group", "other", "--all")[1]
    assert [line.split()[0] for line in everything[1:]] == [
        "consumer.assignment.interval.ms=1000",
        "consumer.heartbeat.interval.ms=5000",
        "consumer.session.timeout.ms=45000",
    ]


def test_what_does_not_exist_is_said_in_kafkas_words(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(cluster, capsys, "--describe", "--topic", "other")
    assert shown == (0, ["The topic 'other' doesn't exist and doesn't have dynamic config."], "")
    shown = call(cluster, capsys, "--describe", "--broker", "9")
    assert shown == (0, ["The broker '9' doesn't exist and doesn't have dynamic config."], "")


def test_a_users_passwords_are_set_described_and_removed(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    added = "SCRAM-SHA-256=[iterations=8192,password=a, b=c],SCRAM-SHA-512=[password=secret]"
    done = ["Completed updating config for user alice."]
    assert call(cluster, capsys, "--alter", *alice, "--add-config", added) == (0, done, "")
    line = "SCRAM credential configs for user-principal 'alice' are {}"
    both = line.format("SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096")
    assert call(cluster, capsys, "--describe", *alice)[1] == [both]
    assert call(cluster, capsys, "--describe", "--entity-type", "users")[1] == [both]
    assert call(cluster, capsys, "--alter", "--user", "alice", "--delete-config", "SCRAM-SHA-256") == (0, done, "")
    assert call(cluster, capsys, "--describe", "--user", "alice")[1] == [line.format("SCRAM-SHA-512=iterations=4096")]
    code, _, error = call(cluster, capsys, "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    assert (code, "Attempt to delete a user credential that does not exist" in error) == (1, True)
    assert call(cluster, capsys, "--describe", "--user", "bob") == (0, [], "")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("SCRAM-SHA-256=[iterations=4095,password=secret]", "Iterations 4095 is less than the minimum 4096"),
        ("SCRAM-SHA-256=[secret]", "Invalid credential property SCRAM-SHA-256"),
        ("SCRAM-SHA-256=[iterations=16385,password=secret]", "Too many iterations"),
        ("retention.ms=1", "Unexpected config names: retention.ms"),
        ("consumer_byte_rate=1,SCRAM-SHA-256=[password=secret]", "Cannot alter both quota and SCRAM"),
    ],
)
def test_a_bad_credential_is_refused_without_the_password(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], value: str, message: str
) -> None:
    code, _, error = call(cluster, capsys, "--alter", "--user", "alice", "--add-config", value)
    assert (code, message in error, "secret" in error) == (1, True, False)


ALICE, DEFAULT_CLIENT = (
    ("--entity-type", "users", "--entity-name", "alice"),
    ("--entity-type", "clients", "--entity-default"),
)


@pytest.mark.parametrize(
    ("entity", "shown", "done"),
    [
        (ALICE, "user-principal 'alice'", "config for user alice."),
        (("--user", "alice"), "user-principal 'alice'", "config for user alice."),
        (("--client", "etl"), "client-id 'etl'", "config for client etl."),
        (("--user-defaults",), "the default user-principal", "default config for users in the cluster."),
        (DEFAULT_CLIENT, "the default client-id", "default config for clients in the cluster."),
        ((*ALICE, *DEFAULT_CLIENT), "user-principal 'alice', the default client-id", "config for user alice."),
        (
            (*DEFAULT_CLIENT, *ALICE),
            "user-principal 'alice', the default client-id",
            "default config for clients in the cluster.",
        ),
    ],
)
def test_quotas_are_set_described_and_removed(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], entity: tuple[str, ...], shown: str, done: str
) -> None:
    added = ("--add-config", "producer_byte_rate=10000000,request_percentage=12.5")
    assert call(cluster, capsys, "--alter", *entity, *added) == (0, [f"Completed updating {done}"], "")
    line = f"Quota configs for {shown} are "
    assert call(cluster, capsys, "--describe", *entity)[1][0] == (
        f"{line}request_percentage=12.5, producer_byte_rate=1.0E7"
    )
    changed = ("--delete-config", "producer_byte_rate", "--add-config", "request_percentage=20")
    assert call(cluster, capsys, "--alter", *entity, *changed)[0] == 0
    assert call(cluster, capsys, "--describe", *entity)[1][0] == f"{line}request_percentage=20.0"


def test_quotas_of_all_are_listed_by_what_they_are_of(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for entity in (("--user", "alice"), ("--client", "etl"), ("--user", "alice", "--client", "etl")):
        assert call(cluster, capsys, "--alter", *entity, "--add-config", "consumer_byte_rate=5")[0] == 0
    of = "Quota configs for {} are consumer_byte_rate=5.0"
    users, clients = ("--entity-type", "users"), ("--entity-type", "clients")
    assert call(cluster, capsys, "--describe", *users)[1] == [of.format("user-principal 'alice'")]
    assert call(cluster, capsys, "--describe", *clients)[1] == [of.format("client-id 'etl'")]
    both = call(cluster, capsys, "--describe", *users, *clients)[1]
    assert both == [of.format("user-principal 'alice', client-id 'etl'")]
    row = '{"entity":{"client-id":"etl","user":"alice"},"quotas":{"consumer_byte_rate":5.0}}'
    assert call(cluster, capsys, "--describe", *users, *clients, "--output", "json")[1] == [row]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--client", "etl", "--add-config", "SCRAM-SHA-256=[password=p]"),
            "Only quota configs can be added for 'clients'",
        ),
        (("--client", "etl", "--delete-config", "a"), "Only quota configs can be deleted for 'clients'"),
        (("--client", "etl", "--add-config", "producer_byte_rate=x"), "Cannot parse quota configuration value"),
        (
            ("--client", "etl", "--add-config", "producer_byte_rate=0"),
            "Quota producer_byte_rate must be greater than 0",
        ),
        (("--client", "etl", "--delete-config", "producer_byte_rate"), "Invalid config(s): producer_byte_rate"),
        (("--user-defaults", "--add-config", "SCRAM-SHA-256=[password=p]"), "is not allowed with User SCRAM"),
    ],
)
def test_a_bad_quota_is_refused(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = call(cluster, capsys, "--alter", *arguments)
    assert (code, message in error) == (1, True), error
