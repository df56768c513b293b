"""The flags that every tool has: how a cluster is named, property files, spellings of old, topics by expression."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import pytest

from stratalog.jobs.command.arguments import client_properties, cluster_root
from stratalog.jobs.command.partition_filter import TopicFilter
from stratalog.jobs.command.properties import key_values, parse_properties, read_properties
from stratalog.jobs.command.terminal import DONE, FAILED, INTERRUPTED, OneLine, UsageError, error_text
from stratalog.jobs.command.tool import Command, one_spelling
from stratalog.storage.errors import RecordTooLargeError


def given(**flags: object) -> argparse.Namespace:
    return argparse.Namespace(**({"root": None, "bootstrap_server": None} | flags))


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster but what a test names."""
    for name in ("STRATA_ROOT", "STRATA_BOOTSTRAP_SERVERS", "STRATA_COMMAND_CONFIG", "STRATA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_a_tool_of_storage_refuses_brokers_addresses_and_names_what_it_reads() -> None:
    with pytest.raises(UsageError, match=r"--bootstrap-server h:9092: the history is on storage alone.* --root"):
        cluster_root(given(bootstrap_server="h:9092"), "the history is")


def test_a_cluster_that_nothing_names_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"Which cluster\? Give --root ROOT"):
        cluster_root(given())


def test_a_clusters_folder_is_answered_with_its_metadata_root(tmp_path: Path) -> None:
    (tmp_path / "metadata" / "__cluster_metadata-0").mkdir(parents=True)
    with pytest.raises(UsageError, match=f"its metadata root is {tmp_path}/metadata"):
        cluster_root(given(root=str(tmp_path)))
    assert cluster_root(given(root=f"{tmp_path}/metadata")) == f"{tmp_path}/metadata"


def test_an_unknown_flag_is_no_recognized_option() -> None:
    with pytest.raises(UsageError, match=r"frobnicate is not a recognized option\nTry '.* --help'"):
        Command("topics", "", "", {}, lambda given: 0).parse(["--frobnicate=1"])


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb : 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n  a = x y \n", {"a": "x y "}),
        ("a=1,\\\n   2\nb=\\\\\nc=", {"a": "1,2", "b": "\\", "c": ""}),
        ("key.separator=\\t\nu=\\u00e9\na\\=b=c", {"key.separator": "\t", "u": "é", "a=b": "c"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_java_properties(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_a_property_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.properties cannot be read: No such file"):
        read_properties(str(tmp_path / "none.properties"))


def test_single_properties_come_before_the_files(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=5\nacks=1\nbootstrap.servers=b:9092\nkey.serializer=X\n")
    assert client_properties(str(file), ["acks=all"]) == {"linger.ms": "5", "acks": "all"}


def test_a_property_without_a_name_is_refused() -> None:
    assert key_values(["a", "b=", "c==d"]) == {"a": "", "b": "", "c": "=d"}
    with pytest.raises(UsageError, match="must be in the format key=value"):
        key_values(["=1"])


def test_an_old_spelling_is_taken_with_a_warning_but_not_beside_the_new(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_spelling(given(formatter_property=[], property=["a=1"]), "formatter-property", "property") == ["a=1"]
    assert "Option --property is deprecated" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--property and --formatter-property cannot be specified together"):
        one_spelling(given(formatter_property=["b=1"], property=["a=1"]), "formatter-property", "property")


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("a", {"a"}),
        ("a.*", {"a", "ab", "a.b"}),
        ("a, ab", {"a", "ab"}),
        ("'a'", {"a"}),
        (".*", {"a", "ab", "a.b"}),
    ],
)
def test_a_topic_filter_is_an_expression_over_the_whole_name(expression: str, allowed: set[str]) -> None:
    names = ("a", "ab", "a.b", "__consumer_offsets")
    wanted = TopicFilter(expression, exclude_internal=True)
    assert {name for name in names if wanted.allows(name)} == allowed


def test_a_broken_expression_is_named() -> None:
    with pytest.raises(UsageError, match=r"\( is an invalid regex\."):
        TopicFilter("(")


def test_errors_carry_kafkas_name() -> None:
    assert error_text(RecordTooLargeError("too large")) == "ERROR MESSAGE_TOO_LARGE: too large"
    assert error_text(ValueError("odd")) == "ERROR ValueError: odd"
    assert error_text(UsageError("give --root")) == "give --root"
    assert (DONE, FAILED, INTERRUPTED) == (0, 1, 130)


def test_a_log_line_has_no_traceback() -> None:
    try:
        raise ValueError("inside")
    except ValueError:
        record = logging.LogRecord("stratalog", logging.WARNING, "f.py", 1, "it failed", (), sys.exc_info())
    assert OneLine("%(levelname)s %(message)s").format(record) == "WARNING it failed"
