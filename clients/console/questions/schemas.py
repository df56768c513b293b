"""Schemas: subjects, their versions and texts, what differs, what would fit, and which topics use them.

I/O: the registry; for the users of a subject the newest records of topics.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.schemas.decoded import indented
from stratalog.clients.console.schemas.known import KnownRegistry, SubjectSight, registry_of, subjects_of, topic_of
from stratalog.clients.console.shown_text import visible
from stratalog.clients.schemas.errors import SchemaNotFoundError, SubjectNotFoundError
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaType, referenced
from stratalog.clients.schemas.wire_format import KEY_SCHEMA_ID_HEADER, VALUE_SCHEMA_ID_HEADER, decode_prefix
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import InvalidRequestError, SerializationError, StorageNotKnownError, StratalogError
from stratalog.storage.records import TopicPartition

LIMIT, LIMIT_MAX = 100, 500
READ_MS_MAX = 3_000
"""Time for which one question asks a registry about subjects, or reads records."""
TEXT_MAX = 256 << 10
"""Characters of a schema that are shown and compared."""
GIVEN_BYTES_MAX = 64 << 10
"""Bytes of a schema that a user asks about."""
LATEST = -1
SAMPLED = 20
"""Number of the newest offsets of a partition whose schemas are looked at."""
SAMPLE_BYTES = 1 << 18
VERSIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A subject. What is not known is -1 or empty: the registry was not asked in time, or refuses.

    topic  of a subject that is named after one
    """

    subject: str
    versions: int
    latest: int
    latest_id: int
    kind: str
    compatibility: str
    topic: str


@dataclass(frozen=True, slots=True)
class SubjectList:
    """A part of the subjects that the user sees, by name.

    registry       the topic or the server with the schemas; empty: there is none
    compatibility  the level of subjects without one of their own
    count          of all that fit
    """

    registry: str
    compatibility: str
    subjects: list[SubjectRow]
    first: int
    count: int
    is_cut: bool
    read_ms: int


@dataclass(frozen=True, slots=True)
class SchemaUsed:
    """A schema to which another one refers by a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A version of a subject.

    versions     the numbers of all versions, the newest first
    text         a Protobuf file is its descriptor in the text format of Protobuf
    against      the version that `differences` begins with; -1: none
    differences  a unified diff
    """

    registry: str
    subject: str
    version: int
    versions: list[int]
    schema_id: int
    guid: str
    kind: str
    text: str
    is_cut: bool
    references: list[SchemaUsed]
    compatibility: str
    topic: str
    against: int
    differences: list[str]
    read_ms: int


@dataclass(frozen=True, slots=True)
class SchemaPlaces:
    """Where a schema is registered, as far as the user sees it."""

    schema_id: int
    kind: str
    subjects: list[SchemaUsed]


@dataclass(frozen=True, slots=True)
class SchemaFit:
    """Whether a schema could become the next version.

    compared  the version that it was compared with; -1: those that the level names
    reasons   why it could not
    """

    subject: str
    compatibility: str
    compared: int
    fits: bool
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class SubjectUser:
    """A topic that uses a subject.

    is_named   the subject has the topic's name
    versions   those that its newest records name, the newest first
    records    number of these records, of `sampled`
    """

    topic: str
    part: str
    is_named: bool
    versions: list[int]
    records: int
    sampled: int


@dataclass(frozen=True, slots=True)
class SubjectUsers:
    """Topics that the user may read, and that use a subject. `is_cut`: not all were read in time."""

    subject: str
    topics: list[SubjectUser]
    is_cut: bool
    read_ms: int


def _registry(asker: Asker) -> KnownRegistry:
    asker.cluster.view.refresh(max_age_ms=1)
    found = registry_of(asker)
    if found is None:
        raise StorageNotKnownError(
            f"no registry is known: the cluster has no topic {asker.beside.schemas_topic}; name a server by "
            "--schema-registry"
        )
    return found


def _check_seen(asker: Asker, subject: str) -> SubjectSight:
    """SubjectNotFoundError for a hidden subject, as for one that is not there."""
    sight = SubjectSight(asker)
    if not sight.sees(subject):
        raise SubjectNotFoundError(f"Subject '{subject}' not found.")
    return sight


def schemas(asker: Asker, contains: str, topic: str, first: int, limit: int) -> SubjectList:
    """Subjects by name."""
    asker.cluster.view.refresh(max_age_ms=1)
    known = registry_of(asker)
    if known is None:
        return SubjectList("", "", [], 0, 0, False, asker.now_ms)
    registry, sight = known.registry, SubjectSight(asker)
    names = sorted(each for each in registry.subjects() if sight.sees(each) and contains.lower() in each.lower())
    if topic:
        names = subjects_of(topic, names)
    first, limit = max(0, first), max(1, min(limit, LIMIT_MAX))
    shown_names = names[first : first + limit]
    clock = asker.cluster.view.clock
    deadline_ms = clock.monotonic_ms() + READ_MS_MAX
    rows, is_cut = [], False
    for name in shown_names:
        row = SubjectRow(visible(name), -1, -1, -1, "", "", visible(topic_of(name) or ""))
        if clock.monotonic_ms() < deadline_ms:
            row = _with_versions(known, name, row)
        else:
            is_cut = True
        rows.append(row)
    level = "" if not names and not sight.sees("") else _level(known, None)
    return SubjectList(known.name, level, rows, first, len(names), is_cut, asker.now_ms)


def _with_versions(known: KnownRegistry, subject: str, row: SubjectRow) -> SubjectRow:
    try:
        numbers = known.registry.versions(subject)
        latest = known.registry.version(subject)
        return replace(
            row,
            versions=len(numbers),
            latest=latest.version or -1,
            latest_id=latest.id or -1,
            kind=latest.schema.type.value,
            compatibility=_level(known, subject),
        )
    except StratalogError:
        return row


def _level(known: KnownRegistry, subject: str | None) -> str:
    try:
        return known.registry.compatibility(subject)
    except StratalogError:
        return ""


def schema(asker: Asker, subject: str, version: int, against: int) -> SchemaText:
    """One version, and what differs from another one."""
    sight = _check_seen(asker, subject)
    known = _registry(asker)
    registry = known.registry
    found = registry.version(subject, None if version == LATEST else version)
    numbers = sorted(registry.versions(subject), reverse=True)
    number = found.version or LATEST
    earlier = [each for each in numbers if each < number]
    compared = against if against != LATEST else (earlier[0] if earlier else LATEST)
    text = schema_text(found.schema)
    differences: list[str] = []
    if compared not in (LATEST, number):
        before = schema_text(registry.version(subject, compared).schema)
        names = f"version {compared}", f"version {number}"
        differences = [visible(each) for each in _diff(before[:TEXT_MAX], text[:TEXT_MAX], names)]
    used = [
        SchemaUsed(visible(each.name), visible(each.subject), each.version)
        for each in found.schema.references
        if sight.sees(each.subject)
    ]
    return SchemaText(
        known.name,
        visible(subject),
        number,
        numbers[:VERSIONS_MAX],
        -1 if found.id is None else found.id,
        str(found.guid or ""),
        found.schema.type.value,
        visible(text[:TEXT_MAX]),
        len(text) > TEXT_MAX,
        used,
        _level(known, subject),
        visible(topic_of(subject) or ""),
        compared,
        differences,
        asker.now_ms,
    )


def schema_text(found: Schema) -> str:
    """The text of a schema with a line for each value; of a Protobuf descriptor in Protobuf's text format."""
    if found.type != SchemaType.PROTOBUF:
        return indented(found.text)
    try:
        from stratalog.clients.schemas.compatibility.protobuf import parsed_file

        return str(parsed_file(found.text))
    except (StratalogError, ImportError):  # a .proto file, or no package protobuf
        return found.text


def _diff(before: str, after: str, names: tuple[str, str]) -> Iterable[str]:
    lines = before.splitlines(), after.splitlines()
    if sum(map(len, lines)) > 20_000:
        return ["both versions are too long to be compared here"]
    return difflib.unified_diff(*lines, *names, lineterm="", n=3)


def schema_by_id(asker: Asker, schema_id: int) -> SchemaPlaces:
    """Subjects and versions of an id. SchemaNotFoundError, also for one of hidden subjects alone."""
    known, sight = _registry(asker), SubjectSight(asker)
    absent = SchemaNotFoundError(f"Schema {schema_id} not found")
    try:
        places = [each for each in known.registry.subject_versions(schema_id) if sight.sees(each[0])]
    except SchemaNotFoundError:
        raise absent from None
    if not places:
        raise absent
    kind = known.registry.schema_by_id(schema_id).schema.type.value
    return SchemaPlaces(schema_id, kind, [SchemaUsed("", visible(subject), version) for subject, version in places])


def schema_fits(asker: Asker, subject: str, text: str, kind: str, version: int) -> SchemaFit:
    """Whether a schema could be registered, or fits one version. InvalidSchemaError for a text that is none."""
    sight = _check_seen(asker, subject)
    known = _registry(asker)
    if len(text.encode(errors="replace")) > GIVEN_BYTES_MAX:
        raise InvalidRequestError(f"the schema has more than {GIVEN_BYTES_MAX >> 10} KiB")
    if not text.strip():
        raise InvalidRequestError("the schema is empty")
    earlier = known.registry.versions(subject)
    for each in earlier if version == LATEST else [version]:
        _check_used(known, sight, known.registry.version(subject, each))
    given = Schema(text, SchemaType(kind))
    reasons = known.registry.incompatibilities(subject, given, None if version == LATEST else version)
    return SchemaFit(
        visible(subject),
        _level(known, subject),
        version,
        not reasons,
        [visible(each[:2_000]) for each in reasons[:200]],
    )


def _check_used(known: KnownRegistry, sight: SubjectSight, found: RegisteredSchema) -> None:
    """Reasons name what a schema refers to: SubjectNotFoundError when a part of it is hidden."""
    texts = [found.schema, *referenced(known.registry, found.schema).values()]
    if not all(sight.sees(each.subject) for one in texts for each in one.references):
        raise SubjectNotFoundError("a version refers to subjects that you may not see")


def schema_users(asker: Asker, subject: str) -> SubjectUsers:
    """Topics that use a subject: by its name, and by their newest records."""
    _check_seen(asker, subject)
    known, view = _registry(asker), asker.cluster.view
    versions: dict[int, int] = {}
    for number in known.registry.versions(subject)[-VERSIONS_MAX:]:
        found = known.registry.version(subject, number)
        if found.id is not None:
            versions[found.id] = number
    named = topic_of(subject)
    deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX
    topics = [each for each in view.topics() if asker.may(Operation.READ, ResourceType.TOPIC, each)]
    topics.sort(key=lambda each: (each != named, each))
    rows: list[SubjectUser] = []
    is_cut = False
    for topic in topics:
        if topic.startswith("__") or topic == asker.beside.schemas_topic:
            continue
        if view.clock.monotonic_ms() >= deadline_ms:
            is_cut = True
            break
        rows += _uses(asker, topic, subject, versions)
    return SubjectUsers(visible(subject), rows, is_cut, asker.now_ms)


def _uses(asker: Asker, topic: str, subject: str, versions: dict[int, int]) -> list[SubjectUser]:
    parts: dict[str, list[int]] = {"key": [], "value": []}
    sampled = 0
    for row in _newest_rows(asker, topic):
        sampled += 1
        for part, header in (("key", KEY_SCHEMA_ID_HEADER), ("value", VALUE_SCHEMA_ID_HEADER)):
            named = _schema_id(row[part], row["headers"], header)
            if named in versions:
                parts[part].append(versions[named])
    found = []
    for part, numbers in parts.items():
        is_named = subject == f"{topic}-{part}"
        if numbers or is_named:
            found.append(SubjectUser(topic, part, is_named, sorted(set(numbers), reverse=True), len(numbers), sampled))
    return found


def _newest_rows(asker: Asker, topic: str) -> list[dict[str, object]]:
    """The newest records of a topic's partitions; those of partitions without a leader are left out."""
    view = asker.cluster.view
    rows: list[dict[str, object]] = []
    count = min(len(view.image.partitions_of(topic)), SAMPLED)
    try:
        marks = view.watermarks.published_now([TopicPartition(topic, each) for each in range(count)])
        for named, mark in marks.items():
            if mark is not None and mark.high_watermark > mark.log_start_offset:
                begin = max(mark.log_start_offset, mark.high_watermark - SAMPLED)
                found = view.records.fetch(named, begin, SAMPLE_BYTES, mark.high_watermark, WAIT_MS)
                rows += found.rows.select(["key", "value", "headers"]).to_pylist()
    except StratalogError:
        return rows
    return rows


def _schema_id(data: object, headers: object, header: str) -> int | None:
    given: Sequence[dict[str, object]] = headers if isinstance(headers, list) else ()
    told = next((each["value"] for each in given if each["key"] == header), data)
    try:
        return decode_prefix(told)[0].id if isinstance(told, bytes) else None
    except SerializationError:
        return None


_SUBJECT = Parameter(str, "the subject, as orders-value")
QUESTIONS = (
    Question(
        "schemas",
        "Subjects of the schema registry that you may see: versions, newest schema, compatibility level.",
        schemas,
        {
            "contains": Parameter(str, "a part of the subject's name", ""),
            "topic": Parameter(str, "only subjects that are named after this topic", ""),
            "first": Parameter(int, "the number of the first one to show", 0),
            "limit": Parameter(int, f"how many to show, at most {LIMIT_MAX}", LIMIT),
        },
    ),
    Question(
        "schema",
        "One version of a subject: its text, id, references, and what differs from another version.",
        schema,
        {
            "subject": _SUBJECT,
            "version": Parameter(int, "its number; -1: the latest", LATEST),
            "against": Parameter(int, "the version to compare with; -1: the one before", LATEST),
        },
    ),
    Question(
        "schema_by_id",
        "The subjects and versions under which the schema with an id is registered.",
        schema_by_id,
        {"schema_id": Parameter(int, "the id, as records have it")},
    ),
    Question(
        "schema_fits",
        "Whether a schema could become the next version of a subject, and if not, why.",
        schema_fits,
        {
            "subject": _SUBJECT,
            "text": Parameter(str, "the schema; of Protobuf a FileDescriptorProto in base64"),
            "kind": Parameter(str, "its type", SchemaType.AVRO.value, tuple(each.value for each in SchemaType)),
            "version": Parameter(int, "compare with this version alone; -1: with those that the level names", LATEST),
        },
    ),
    Question(
        "schema_users",
        "Topics that use a subject, by its name and by the schemas that their newest records name.",
        schema_users,
        {"subject": _SUBJECT},
    ),
)
