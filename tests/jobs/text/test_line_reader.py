"""Lines of the console producer as records, by Kafka's rules."""

from __future__ import annotations

import pytest

from stratalog.jobs.text.line_reader import InputRecord, LineReader, without_line_end
from stratalog.storage.errors import InvalidConfigError, InvalidRecordError
from stratalog.storage.records import Header

KEYED = {"parse.key": "true"}
HEADED = {"parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, b"a\tb", InputRecord(None, b"a\tb", [])),
        ({}, b"", InputRecord(None, b"", [])),
        ({}, b"\xff\xfe", InputRecord(None, b"\xff\xfe", [])),
        (KEYED, b"k\tv\tw", InputRecord(b"k", b"v\tw", [])),
        (KEYED, b"\t", InputRecord(b"", b"", [])),
        (KEYED | {"key.separator": "::"}, b"k::v", InputRecord(b"k", b"v", [])),
        (KEYED | {"ignore.error": "true"}, b"just a value", InputRecord(None, b"just a value", [])),
        (KEYED | {"null.marker": "NULL"}, b"NULL\tNULL", InputRecord(None, None, [])),
        (HEADED, b"h1:v1,h2:v2\tv", InputRecord(None, b"v", [Header("h1", b"v1"), Header("h2", b"v2")])),
        (HEADED, b"h1:a:b,\tv", InputRecord(None, b"v", [Header("h1", b"a:b")])),
        (HEADED | {"null.marker": "NULL"}, b"NULL\tv", InputRecord(None, b"v", [])),
        (HEADED | {"null.marker": "NULL"}, b"h:NULL\tv", InputRecord(None, b"v", [Header("h", None)])),
        (HEADED | {"ignore.error": "TRUE"}, b"h\tv", InputRecord(None, b"v", [Header("h", None)])),
        (KEYED | HEADED, b"h:v\tk\tv", InputRecord(b"k", b"v", [Header("h", b"v")])),
        (KEYED | HEADED | {"headers.delimiter": "|"}, b"h:v|k\tv", InputRecord(b"k", b"v", [Header("h", b"v")])),
    ],
)
def test_a_line_as_a_record(properties: dict[str, str], line: bytes, record: InputRecord) -> None:
    assert LineReader.from_properties(properties).record(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "message"),
    [
        (KEYED, b"abc", "No key separator found on line number 7: 'abc'"),
        (HEADED, b"abc", "No headers delimiter found on line number 7: 'abc'"),
        (HEADED, b"h\tv", "No header key separator found in pair 'h' on line number 7"),
        (HEADED | {"null.marker": "N"}, b"N:1\tv", "Header keys should not be equal to the null marker 'N'"),
    ],
)
def test_a_line_that_cannot_be_taken_apart_is_named(properties: dict[str, str], line: bytes, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        LineReader.from_properties(properties).record(line, 7)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"parse_key": "true"}, "Unknown reader property name: parse_key"),
        ({"headers.separator": ":"}, r"headers\.separator and headers\.key\.separator may not be equal"),
        ({"null.marker": "\t"}, r"null\.marker and key\.separator may not be equal"),
        ({"key.separator": ""}, "String must be non-empty"),
    ],
)
def test_wrong_reader_properties_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        LineReader.from_properties(properties)


@pytest.mark.parametrize(("line", "content"), [(b"a\n", b"a"), (b"a\r\n", b"a"), (b"a", b"a"), (b"a\r", b"a\r")])
def test_the_end_of_a_line_is_not_part_of_it(line: bytes, content: bytes) -> None:
    assert without_line_end(line) == content
