"""The broker's end of a channel: each object is performed once and in order, whatever a listing shows."""

from __future__ import annotations

from struct import pack

from stratalog.replication.requests.inbox_frames import WHOLE_CHANNEL, FrameEntry, Frames
from stratalog.server.endpoint.inbox_channel import GAPS_MAX, ServedChannel
from stratalog.server.endpoint.order import Flight
from stratalog.wire.api_keys import ApiKey

EPOCH = 7
OVER = (FrameEntry(WHOLE_CHANNEL),)


def frame(name: bytes, api_key: int = ApiKey.HEARTBEAT) -> bytes:
    return pack(">h", api_key) + name


def sent(*entries: tuple[int, bytes], epoch: int = EPOCH, next_answer: int = 0) -> Frames:
    return Frames(epoch, next_answer, [FrameEntry(*each) for each in entries])


def begun(channel: ServedChannel) -> list[tuple[int, Flight]]:
    return channel.to_begin()


def names(flights: list[tuple[int, Flight]]) -> list[tuple[int, bytes]]:
    return [(conversation, bytes(flight.frame)[2:]) for conversation, flight in flights]


def test_requests_of_a_conversation_follow_each_other_and_conversations_do_not_wait() -> None:
    channel = ServedChannel(EPOCH)
    channel.listed([0])
    assert channel.to_read() == 0
    channel.received(0, sent((1, frame(b"a")), (1, frame(b"b")), (2, frame(b"c"))))
    first = begun(channel)
    assert sorted(names(first)) == [(1, b"a"), (2, b"c")]
    (a,) = [flight for conversation, flight in first if conversation == 1]
    channel.answered(1, a, b"to a")
    assert names(begun(channel)) == [(1, b"b")]
    assert channel.to_write() == (0, Frames(EPOCH, 0, (FrameEntry(1, b"to a"),)))
    assert not channel.is_idle


def test_batches_go_on_together() -> None:
    channel = ServedChannel(EPOCH)
    channel.received(0, sent(*((1, frame(b"%d" % number, ApiKey.PRODUCE)) for number in range(3))))
    flights = [flight for _, flight in begun(channel)]
    assert len(flights) == 3
    channel.answered(1, flights[2], b"2")
    assert channel.to_write() is None
    channel.answered(1, flights[0], None)  # acks=0
    channel.answered(1, flights[1], [b"1", b"!"])
    written = channel.to_write()
    assert written is not None
    assert [each.frame for each in written[1].entries] == [b"1!", b"2"]
    channel.wrote(written[1])
    assert (channel.to_write(), channel.is_idle) == (None, True)


def test_answers_that_come_while_others_are_written_are_the_next_object() -> None:
    channel = ServedChannel(EPOCH)
    channel.received(0, sent((1, frame(b"a")), (2, frame(b"b"))))
    (one, a), (two, b) = begun(channel)
    channel.answered(one, a, b"1")
    first = channel.to_write()
    assert first is not None
    channel.answered(two, b, b"2")
    channel.wrote(first[1])
    assert channel.to_write() == (1, Frames(EPOCH, 1, (FrameEntry(two, b"2"),)))


def test_an_object_that_was_written_again_is_performed_once() -> None:
    channel = ServedChannel(EPOCH)
    channel.listed([0])
    channel.received(0, sent((1, frame(b"a"))))
    assert len(begun(channel)) == 1
    assert channel.to_delete() == [0]
    channel.listed([0, 1])
    assert channel.to_read() is None
    assert channel.to_delete() == [0]
    assert channel.to_read() == 1
    channel.listed([1])
    assert channel.to_delete() == []


def test_the_next_object_is_waited_for_and_a_lasting_gap_ends_the_channel() -> None:
    channel = ServedChannel(EPOCH)
    for _ in range(GAPS_MAX - 1):
        channel.listed([5])
        assert channel.to_read() is None
    channel.listed([0, 5])
    assert channel.to_read() == 0
    lost = ServedChannel(EPOCH)
    for _ in range(GAPS_MAX):
        lost.listed([5])
    assert lost.to_read() == 5
    lost.received(5, sent((1, frame(b"a")), next_answer=4))
    assert begun(lost) == []
    assert (lost.is_over, lost.to_write()) == (True, (4, Frames(EPOCH, 4, OVER)))
    assert lost.to_delete() == [5]


def test_requests_to_another_registration_of_the_broker_are_not_performed() -> None:
    for epoch in (EPOCH - 1, EPOCH + 1):
        channel = ServedChannel(EPOCH)
        channel.received(0, sent((1, frame(b"a")), epoch=epoch))
        assert begun(channel) == []
        assert channel.to_write() == (0, Frames(EPOCH, 0, OVER))


def test_what_cannot_be_read_ends_the_channel() -> None:
    channel = ServedChannel(EPOCH)
    channel.received(0, sent((1, frame(b"a"))))
    ((_, a),) = begun(channel)
    channel.received(1, None)
    channel.answered(1, a, b"late")
    assert channel.to_write() == (0, Frames(EPOCH, 0, OVER))


def test_a_conversation_that_is_closed_ends_alone() -> None:
    channel = ServedChannel(EPOCH)
    channel.received(0, sent((1, frame(b"a")), (1, frame(b"b")), (2, frame(b"c"))))
    (_, a), (_, c) = sorted(begun(channel), key=lambda each: each[0])
    channel.ended(1)
    channel.ended(1)
    channel.answered(1, a, b"late")
    channel.answered(2, c, b"2")
    written = channel.to_write()
    assert written is not None
    assert list(written[1].entries) == [FrameEntry(1), FrameEntry(2, b"2")]


def test_a_client_that_leaves_is_not_answered() -> None:
    channel = ServedChannel(EPOCH)
    channel.received(0, sent((1, frame(b"a"))))
    ((_, a),) = begun(channel)
    channel.received(1, Frames(EPOCH, 0, [FrameEntry(WHOLE_CHANNEL)]))
    channel.answered(1, a, b"late")
    channel.listed([0, 1, 2])
    assert (channel.is_over, channel.is_idle, channel.to_write(), channel.to_read()) == (True, True, None, None)
    assert channel.to_delete() == [0, 1, 2]
