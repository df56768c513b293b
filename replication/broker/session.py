"""How a broker shows that it lives: by its session's object, and on an object store by beats to the other brokers.

I/O: the session's object; calls of other brokers. What is to be written is a pure decision (`is_object_due`).
"""

from __future__ import annotations

from stratalog.replication import cadence
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.controller.sessions import Beat, PeerBeats, encode_session, session_path
from stratalog.storage.objects.port import ObjectStore


def is_object_due(now_ms: int, written_ms: int, answered_ms: int, dead_ms: int, *, is_taken: bool) -> bool:
    """Whether a beat is to write the session's object, too, on an object store.

    written_ms   when it was written last
    answered_ms  when the metadata root last answered this broker
    dead_ms      the silence after which the root counts as away: then there is no beat without a write
    is_taken     whether all live brokers have taken a recent beat

    >>> [is_object_due(now_ms, 0, now_ms - 500, 3_000, is_taken=True) for now_ms in (2_000, 29_999, 30_000)]
    [False, False, True]
    >>> is_object_due(2_000, 0, 1_500, 3_000, is_taken=False), is_object_due(6_000, 0, 2_000, 3_000, is_taken=True)
    (True, True)
    """
    is_away = now_ms - answered_ms > dead_ms
    return not is_taken or is_away or now_ms - written_ms >= cadence.SESSION_WRITTEN.ms


class BrokerSession:
    """The session of one process's broker, which shows that the broker lives as long as it changes. A broker whose
    storage answers nothing sends no beats: its session expires."""

    def __init__(
        self, loop: LoopState, store: ObjectStore, incarnation_id: str, beats: PeerBeats | None = None
    ) -> None:
        """`store`: the metadata root. `beats` None: nobody is called."""
        self.incarnation_id = incarnation_id
        self.is_taken = False
        """Whether all live brokers took recent beats, so that each hears of changes at once. Read by any thread."""
        self._loop = loop
        self._store = store
        self._path = session_path(loop.broker_id)
        self._beat = 0
        """Invariant: it is larger in each content that is written."""
        self._beats = beats if store.distance.is_far else None
        self._dead_ms = max(loop.config.broker_session_timeout_ms // 3, 1)
        self._recent_ms = 3 * loop.config.broker_heartbeat_interval_ms // 2
        self._written_ms = -cadence.SESSION_WRITTEN.ms
        self._announced_offset = -1

    def put(self, broker_epoch: int) -> None:
        """Write a content that differs from the last one. Raises StoreError."""
        self._beat += 1
        self._store.put_register(self._path, encode_session(broker_epoch, self.incarnation_id, self._beat))

    def beat(self, broker_epoch: int, now_ms: int, answered_ms: int) -> None:
        """A heartbeat; `answered_ms` as in `is_object_due`. Raises StoreError: then none was sent."""
        beats = self._beats
        if beats is None or beats.send is None:
            self.put(broker_epoch)
            return
        self.is_taken = beats.is_taken(self._peers(), now_ms - self._recent_ms)
        if is_object_due(now_ms, self._written_ms, answered_ms, self._dead_ms, is_taken=self.is_taken):
            self.put(broker_epoch)
            self._written_ms = now_ms
        self._send(beats, broker_epoch, now_ms)

    def announce(self, broker_epoch: int, now_ms: int) -> None:
        """Have the other brokers read metadata that none of them has told of. Called in each turn."""
        beats, metadata = self._beats, self._loop.metadata
        if beats is None:
            return
        beats.metadata_offset, beats.metadata_version = metadata.next_offset, metadata.log.version
        if metadata.next_offset > max(self._announced_offset, beats.newest_offset):
            self._send(beats, broker_epoch, now_ms)

    def _peers(self) -> dict[int, int]:
        own, live = self._loop.broker_id, self._loop.metadata.image.live_brokers()
        return {broker_id: each.broker_epoch for broker_id, each in live.items() if broker_id != own}

    def _send(self, beats: PeerBeats, broker_epoch: int, now_ms: int) -> None:
        peers, self._announced_offset = self._peers(), self._loop.metadata.next_offset
        if beats.send is not None and peers:
            beats.send(Beat(self._loop.broker_id, broker_epoch, self._announced_offset), peers, now_ms)
