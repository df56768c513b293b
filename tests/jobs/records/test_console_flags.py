"""The flags of the console tools and of the cluster as settings of the clients and brokers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from stratalog.clients.config import ConsumerConfig, ProducerConfig
from stratalog.jobs import cluster
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.records import consume, produce
from stratalog.jobs.text.line_reader import InputRecord, LineReader
from stratalog.storage.errors import InvalidConfigError, RecordTooLargeError


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ([], {}),
        (["--timeout", "5"], {"linger.ms": "5"}),
        (["--request-required-acks", "1"], {"acks": "1"}),
        (["--request-required-acks", "-1"], {}),
        (["--batch-size", "9", "--max-partition-memory-bytes", "7"], {"batch.size": "7"}),
        (["--message-send-max-retries", "3", "--request-timeout-ms=9"], {"retries": "3", "request.timeout.ms": "9"}),
        (
            ["--command-property", "linger.ms=7", "--command-property", "client.id=me"],
            {"linger.ms": "7", "client.id": "me"},
        ),
        (["--command-property", "linger.ms=7", "--timeout", "8"], {"linger.ms": "8"}),
        (["--compression-codec"], {"compression.type": "gzip"}),
        (["--compression-codec", "lz4"], {"compression.type": "lz4"}),
    ],
)
def test_producer_flags_are_producer_configs(arguments: list[str], changed: dict[str, str]) -> None:
    defaults = {"client.id": "console-producer", "compression.type": "none", "linger.ms": "1000", "acks": "-1"}
    settings = produce.producer_settings(produce.main.parse(arguments))
    assert settings == defaults | changed
    ProducerConfig.from_settings(settings, {})


def test_an_unknown_codec_and_reader_are_refused() -> None:
    parse = produce.main.parse
    with pytest.raises(InvalidConfigError, match=r"Invalid value rar for configuration compression\.type"):
        produce.producer_settings(parse(["--compression-codec", "rar"]))
    with pytest.raises(UsageError, match=r"Class com\.example\.Reader could not be found"):
        produce.line_reader(parse(["--line-reader", "com.example.Reader"]))


def test_lines_become_records_and_only_a_terminal_sees_a_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    expected = [InputRecord(None, b"a", []), InputRecord(None, b"b", [])]
    for is_terminal, prompts in ((False, ""), (True, ">>>")):
        records = produce.records_of(io.BytesIO(b"a\nb"), LineReader(), is_terminal)
        assert list(records) == expected
        assert capsys.readouterr().out == prompts


def test_a_failed_record_is_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    failures = produce.Failures("t")
    failures.expect(InputRecord(None, b"abc", []))(None, RecordTooLargeError("too large"))
    failures.expect(InputRecord(None, b"abc", []))(None, None)
    assert failures.count == 1
    assert capsys.readouterr().err == (
        "ERROR Error when sending message to topic t with key: null, value: 3 bytes with error: "
        "MESSAGE_TOO_LARGE: too large\n"
    )


@pytest.mark.parametrize(
    ("arguments", "offset", "reset"),
    [
        (["--topic", "t"], "latest", "latest"),
        (["--topic", "t", "--from-beginning"], "earliest", "earliest"),
        (["--topic", "t", "--partition", "1"], "latest", "latest"),
        (["--topic", "t", "--partition", "1", "--offset", "Earliest"], "earliest", "none"),
        (["--topic", "t", "--partition", "1", "--offset", "7"], 7, "none"),
        (["--include", "a.*", "--command-property", "auto.offset.reset=earliest"], "latest", "earliest"),
    ],
)
def test_where_the_consumer_starts(arguments: list[str], offset: str | int, reset: str) -> None:
    flags = consume.main.parse(arguments)
    settings = consume.consumer_settings(flags)
    assert (consume.reading(flags).offset, settings["auto.offset.reset"]) == (offset, reset)
    ConsumerConfig.from_settings(settings, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"Exactly one of the following arguments is required: \[topic\], \[include\]"),
        (["--topic", "t", "--include", "t"], "Exactly one of"),
        (["--topic", "t", "--offset", "1"], "The partition is required when offset is specified."),
        (["--include", "t", "--partition", "1"], "The topic is required when partition is specified."),
        (["--topic", "t", "--partition", "1", "--offset", "-1"], "The provided offset value '-1' is incorrect."),
        (["--topic", "t", "--partition", "1", "--offset", "x"], "The provided offset value 'x' is incorrect."),
        (["--topic", "t", "--partition", "1", "--offset", "1", "--from-beginning"], "cannot be specified together"),
        (["--topic", "t", "--group", "g", "--partition", "0"], "Options group and partition cannot be specified tog"),
        (
            ["--topic", "t", "--group", "g", "--command-property", "group.id=h"],
            "The group ids provided in different places .* do not match. Detected group ids: 'g', 'h'",
        ),
        (["--topic", "t", "--formatter", "com.example.F"], r"Class com\.example\.F could not be found"),
        (
            ["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'",
        ),
    ],
)
def test_consumer_flags_that_do_not_go_together(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        consume.main.call(["--root", "r", *arguments])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("kafka.tools.DefaultMessageFormatter", "DefaultMessageFormatter"),
        ("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", "OffsetsMessageFormatter"),
        ("org.apache.kafka.tools.consumer.OffsetsMessageFormatter", "OffsetsMessageFormatter"),
    ],
)
def test_formatters_have_the_names_that_kafka_gave_them_over_time(name: str, known: str) -> None:
    old, new = (consume.main.parse(["--topic", "t", "--formatter", each]) for each in (name, known))
    assert consume.formatter(old) == consume.formatter(new)


def test_deserializer_flags_are_formatter_properties() -> None:
    flags = consume.main.parse(["--topic", "t", "--value-deserializer", "IntegerDeserializer"])
    deserialize = consume.formatter(flags).value_deserializer
    assert deserialize is not None
    assert deserialize(b"\0\0\0\x05") == "5"


def test_cluster_settings_come_from_a_file_and_from_single_ones(tmp_path: Path) -> None:
    toml = tmp_path / "cluster.toml"
    toml.write_text("num.partitions = 3\n[replica.lag]\ntime.max.ms = 5\n")
    assert cluster.broker_settings(str(toml), ["num.partitions=4"]) == {
        "num.partitions": "4",
        "replica.lag.time.max.ms": 5,
    }
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=3\n")
    assert cluster.broker_settings(str(properties), []) == {"num.partitions": "3"}
    assert cluster.broker_settings(None, [])["broker.session.timeout.ms"] == 9_000


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num.partition=4", r"Unknown broker config name: num\.partition"),
        ("num.partitions=many", r"Invalid value many for configuration num\.partitions: Not a number of type INT"),
    ],
)
def test_wrong_cluster_settings_are_refused(override: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        cluster.broker_settings(None, [override])


def test_racks_are_given_by_broker() -> None:
    assert cluster.racks(["1=a,2=b", "3=a"], 3) == {1: "a", 2: "b", 3: "a"}
    for wrong, message in (("4=a", "the brokers are 1 to 3"), ("a=1", "in the format"), ("1", "in the format")):
        with pytest.raises(UsageError, match=message):
            cluster.racks([wrong], 3)


@pytest.mark.parametrize("tool", [cluster, consume, produce])
def test_help_shows_every_flag_and_examples(tool: object) -> None:
    shown = tool.main.help()  # type: ignore[attr-defined]
    assert all(wanted in shown for wanted in ("examples", "exit code", "--version"))
    assert "{prog}" not in shown


def test_groups_and_isolation_are_consumer_configs_and_without_a_group_nothing_is_committed() -> None:
    def settings(*arguments: str) -> dict[str, str]:
        return consume.consumer_settings(consume.main.parse(["--topic", "t", *arguments]))

    assert settings("--group", "g")["group.id"] == "g"
    grouped = settings("--command-property", "group.id=g", "--command-property", "enable.auto.commit=false")
    assert (grouped["group.id"], grouped["enable.auto.commit"]) == ("g", "false")
    assert settings("--isolation-level", "read_committed")["isolation.level"] == "read_committed"
    assert settings("--command-property", "isolation.level=read_committed")["isolation.level"] == "read_committed"
    assert "isolation.level" not in settings()
    assert "enable.auto.commit" not in settings("--command-property", "enable.auto.commit=true")
