"""ListTransactions by a pattern: it matches whole ids, and for a limited time."""

from __future__ import annotations

import pytest

from stratalog.replication.client_pattern import client_pattern
from stratalog.replication.requests.transactions import TransactionListing
from stratalog.server.apis.transactions.admin import MATCH_MS_MAX, matching
from stratalog.storage.errors import InvalidRegularExpressionError
from tests.storage.logs import FakeClock

LISTED = [TransactionListing(f"app-{number}", number, "Ongoing") for number in range(20)]


class Passing(FakeClock):
    """Each look at it takes a tenth of the time that is allowed."""

    def monotonic_ms(self) -> int:
        self.now_ms += MATCH_MS_MAX // 10
        return self.now_ms


def test_whole_ids_match() -> None:
    assert matching(LISTED, client_pattern("app-1.?", "pattern"), FakeClock()) == [LISTED[1], *LISTED[10:]]


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    assert matching(LISTED[:9], client_pattern("x", "pattern"), Passing()) == []
    with pytest.raises(InvalidRegularExpressionError, match="simpler"):
        matching(LISTED, client_pattern("x", "pattern"), Passing())
