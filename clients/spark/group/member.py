"""Share mode: a query's planner as a member of its group, and where its partitions begin.

I/O: calls the group's coordinator, and runs the thread of `GroupMembership` for heartbeats. Partitions come and go only
within `advance`, so between two micro-batches. Offsets are committed there before a partition is given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from stratalog.clients.admin.group_description import described_group
from stratalog.clients.consumer.group_member import ConsumerHooks, GroupMembership
from stratalog.clients.consumer.offsets import Committed
from stratalog.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from stratalog.clients.coordinator_calls import RETRY_MS, CoordinatorCalls, ask
from stratalog.clients.records import ConsumerGroupMetadata, OffsetAndMetadata
from stratalog.clients.spark.group.coordinators import find_coordinator
from stratalog.clients.spark.group.offsets import Offsets
from stratalog.clients.spark.group.options import GroupOptions
from stratalog.clients.spark.group.shared_offsets import Owner
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import FencedInstanceIdError, GroupIdNotFoundError, RequestTimedOutError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
"""States of a classic group in which its description has no assignments."""
OWNERS_WAIT_MS = 5_000
WAIT_MS_MAX = 50

_LOG = line_logger("stratalog.source")

Begin = Callable[[Committed], Offsets]
"""Where new partitions begin, from the group's committed offsets of them."""


class QueryMember(ConsumerRebalanceListener):
    """The member of one query. Not thread-safe: a planner has one thread.

    `positions` are the offsets up to which the query has stored its partitions; the group has `_stored` of them, from
    this member. Every commit has the member's id as its metadata, also the first one of a partition that was assigned,
    so that a query knows later whether anybody else has had a partition since its own last commit.
    """

    def __init__(self, group: GroupOptions, calls: CoordinatorCalls, view: ClusterView) -> None:
        """Finds the group's coordinator. BrokerNotAvailableError when no broker answers."""
        self._group = group
        self._calls = calls
        self._view = view
        find_coordinator(calls, group, view.clock)
        self._answered = threading.Event()
        hooks = ConsumerHooks(self._own, dict, view, self._answered.set)
        self._membership = GroupMembership(group.consumer, calls, view.clock, hooks, view.ids.new_id())
        self._owned: frozenset[TopicPartition] = frozenset()
        self._stored: dict[TopicPartition, int] = {}
        self._topics: frozenset[str] = frozenset()
        self._is_behind = False
        self._revoke_timeout_ms = group.consumer.request_timeout_ms
        self.positions: dict[TopicPartition, int] = {}

    def subscribe(self, topics: frozenset[str]) -> None:
        """Share the partitions of these topics, from the next `advance` on."""
        if topics == self._topics:
            return
        self._topics = topics
        if topics:
            self._membership.subscribe(topics, None, self)
        else:
            self._membership.unsubscribe()

    def advance(self, done: Offsets, begin: Begin, timeout_ms: int) -> Offsets | None:
        """The partitions to read now, and where each begins; None while the group rebalances, after `timeout_ms`.

        done   the query has stored everything below these offsets
        begin  called for partitions that were assigned
        Raises errors that no retry helps against: FencedInstanceIdError, GroupAuthorizationFailedError, …
        """
        self.positions.update((tp, offset) for tp, offset in done.items() if tp in self.positions)
        deadline_ms = self._view.clock.monotonic_ms() + timeout_ms
        while True:
            self._answered.clear()
            if not self._topics:
                return {}
            is_committed = self._commit(deadline_ms)
            self._membership.poll()
            if is_committed and self._membership.is_settled and self._begin(begin) and self._commit(deadline_ms):
                return dict(self.positions)
            now_ms = self._view.clock.monotonic_ms()
            if now_ms >= deadline_ms:
                return None
            due_ms = self._membership.next_due_ms()
            wait_ms = WAIT_MS_MAX if due_ms is None else min(max(due_ms - now_ms, 1), WAIT_MS_MAX)
            self._answered.wait(min(wait_ms, deadline_ms - now_ms) / 1000)

    def _begin(self, begin: Begin) -> bool:
        """Decide where new partitions begin; False while the group's offsets cannot be read."""
        new = self._owned - self.positions.keys()
        if not new:
            return True
        try:
            committed = self.committed(new)
        except RequestTimedOutError as reason:
            _LOG.warning("Group %s: the offsets of new partitions cannot be read: %s", self._group.group_id, reason)
            return False
        self.positions.update(begin(committed))
        member_id = self.metadata().member_id
        own = {tp: each.offset for tp, each in committed.items() if each is not None and each.metadata == member_id}
        self._stored.update(own)  # what another one committed is committed again, by this member
        return True

    def committed(self, topic_partitions: Iterable[TopicPartition]) -> Committed:
        """The group's committed offsets, each with the member that committed it as its metadata; None without one.

        RequestTimedOutError, GroupAuthorizationFailedError, …
        """
        return self._membership.offsets.committed(topic_partitions, self._group.consumer.default_api_timeout_ms)

    def metadata(self) -> ConsumerGroupMetadata:
        """The member and generation that have the partitions of `advance`."""
        return self._membership.metadata()

    # -- commits -------------------------------------------------------------------------------------------

    def _commit(self, deadline_ms: int) -> bool:
        """Commit the positions that the group does not have. False if that failed: no batch is planned then, so that
        after a failure of this query the next owner reads at most the batch in flight a second time."""
        due = {tp: offset for tp, offset in self.positions.items() if self._stored.get(tp) != offset}
        if not due:
            return True
        left_ms = max(0, deadline_ms - self._view.clock.monotonic_ms())
        try:
            member_id = self.metadata().member_id
            self._membership.commit_sync(
                {tp: OffsetAndMetadata(offset, member_id) for tp, offset in due.items()}, left_ms
            )
        except FencedInstanceIdError:
            raise
        except StratalogError as reason:
            # out of the group, or in a rebalance, or the coordinator is moving: the membership finds out and acts
            if not self._is_behind:
                _LOG.warning("Group %s: offsets are not committed yet: %s", self._group.group_id, reason)
            self._is_behind = True
            return False
        self._is_behind = False
        self._stored.update(due)
        return True

    # -- called by the membership --------------------------------------------------------------------------

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """The last chance to commit them; if it fails, their next owner reads the last batch again."""
        self._commit(self._view.clock.monotonic_ms() + self._revoke_timeout_ms)
        self._forget(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        _LOG.warning("Group %s: this query is not a member any more and joins again", self._group.group_id)
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            self.positions.pop(topic_partition, None)
            self._stored.pop(topic_partition, None)

    def _own(self, partitions: frozenset[TopicPartition]) -> None:
        self._owned = partitions
        self._forget(self.positions.keys() - partitions)

    # -- the others ----------------------------------------------------------------------------------------

    def owners(self) -> dict[TopicPartition, Owner]:
        """Which member has which partition, as the coordinator knows it: without those of a group that rebalances for
        longer than `OWNERS_WAIT_MS`. RequestTimedOutError, GroupAuthorizationFailedError, …"""
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + OWNERS_WAIT_MS
        while True:
            described = described_group(self._group.group_id, self._ask)
            if described.error is not None and not isinstance(described.error, GroupIdNotFoundError):
                raise described.error
            if described.group_state not in REBALANCING or clock.monotonic_ms() >= deadline_ms:
                break
            clock.sleep_ms(RETRY_MS)
        return {
            tp: Owner(each.member_id, each.group_instance_id) for each in described.members for tp in each.assignment
        }

    def _ask(self, request: object) -> object:
        timeout_ms = self._group.consumer.default_api_timeout_ms
        return ask(self._calls, self._group.group_id, request, self._view.clock, timeout_ms)

    def close(self, timeout_ms: int) -> None:
        """Leave the group, so that others get the partitions at once; a static member's stay until its session ends.

        A last commit gets half of the time: leaving does not wait for a coordinator that cannot store it.
        """
        self._revoke_timeout_ms = timeout_ms // 2
        self._membership.close(timeout_ms)
