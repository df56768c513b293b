"""Commits and fetches of offsets as coordinators decide on them: in pieces, one after the other. Pure.

A decision is made in the broker's loop. Each partition of a commit has an error of its own, and each of a fetch an
offset, so that no piece needs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

from stratalog.replication.requests.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    TxnOffsetCommitRequest,
)
from stratalog.replication.requests.messages import error_response
from stratalog.server.request.api import as_error, gather_in_turns

COMMITTED_TOGETHER = 500
"""The number of partitions in a piece."""
T = TypeVar("T")
P = TypeVar("P")
C = TypeVar("C", OffsetCommitRequest, TxnOffsetCommitRequest)


def commit_in_pieces(
    pieces: Sequence[C],
    ask_piece: Callable[[C, Callable[[object], None]], None],
    done: Callable[[Callable[[], OffsetCommitResponse]], None],
) -> None:
    """Have a coordinator decide on one piece after the other, whether or not somebody waits for the answer. `done` gets
    what makes one answer of all: it is called in the broker's loop, where that would take long."""

    def ask_one(number: int, put: Callable[[Any], None]) -> None:
        ask_piece(pieces[number], put)

    def all_answered(answers: dict[int, Any]) -> None:
        done(lambda: _joined(_answered(pieces[number], each) for number, each in sorted(answers.items())))

    gather_in_turns(range(len(pieces)), ask_one, all_answered, at_a_time=1)


def _answered(piece: object, answer: Any) -> Any:
    """The answer to a piece; of an error the one that has it for each partition."""
    error = as_error(answer)
    return answer if error is None else error_response(piece, error)


def once_each(topics: Iterable[OffsetCommitRequestTopic]) -> list[OffsetCommitRequestTopic]:
    """The topics with the partitions of all places where a request names them: it may name one again and again."""
    found: dict[str, list[OffsetCommitRequestTopic]] = {}
    for topic in topics:
        found.setdefault(topic.name, []).append(topic)
    return [
        replace(named[0], partitions=tuple(each for topic in named for each in topic.partitions))
        for named in found.values()
    ]


def offset_pieces(topics: Sequence[OffsetCommitRequestTopic]) -> list[tuple[OffsetCommitRequestTopic, ...]]:
    """The topics of a commit with at most `COMMITTED_TOGETHER` partitions in each piece: each is one decision, in the
    broker's loop, and one batch of the log. Each partition has an error of its own, so none needs to be with others."""
    pieces = _cut([(topic, topic.partitions) for topic in topics])
    return [tuple(replace(topic, partitions=own) for topic, own in piece if own) for piece in pieces]


def fetch_pieces(topics: Sequence[OffsetFetchRequestTopic]) -> list[tuple[OffsetFetchRequestTopic, ...]]:
    """The same for the topics of a fetch; one that names no partition stays.

    >>> [[len(topic.partition_indexes) for topic in piece] for piece in
    ...  fetch_pieces([OffsetFetchRequestTopic("t", tuple(range(700))), OffsetFetchRequestTopic("u", (1,))])]
    [[500], [200, 1]]
    """
    pieces = _cut([(topic, topic.partition_indexes) for topic in topics])
    return [tuple(replace(topic, partition_indexes=own) for topic, own in piece) for piece in pieces]


def _cut(topics: Iterable[tuple[T, tuple[P, ...]]]) -> list[list[tuple[T, tuple[P, ...]]]]:
    """Topics with their partitions in pieces; one without partitions takes the room of one."""
    pieces: list[list[tuple[T, tuple[P, ...]]]] = [[]]
    room = COMMITTED_TOGETHER
    for topic, partitions in topics:
        left, is_first = partitions, True
        while left or is_first:
            if not room:
                pieces.append([])
                room = COMMITTED_TOGETHER
            pieces[-1].append((topic, left[:room]))
            left, room, is_first = left[room:], max(0, room - max(1, len(left))), False
    return pieces


def joined_fetch(answers: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    """The answers to the pieces of a fetch as one; the error of the first that has one."""
    failed = next((answer for answer in answers if answer.error is not None), None)
    if failed is not None:
        return failed
    if len(answers) == 1:
        return answers[0]
    in_order = groupby(chain.from_iterable(answer.topics for answer in answers), key=attrgetter("name"))
    topics = [
        OffsetFetchResponseTopic(name, tuple(chain.from_iterable(part.partitions for part in cut)))
        for name, cut in in_order
    ]
    return replace(answers[0], topics=tuple(topics))


def _joined(responses: Iterable[Any]) -> OffsetCommitResponse:
    """The answers of pieces, with each topic once."""
    partitions: dict[str, list[OffsetCommitResponsePartition]] = {}
    for response in responses:
        for topic in response.topics:
            partitions.setdefault(topic.name, []).extend(topic.partitions)
    return OffsetCommitResponse(tuple(OffsetCommitResponseTopic(name, tuple(own)) for name, own in partitions.items()))
