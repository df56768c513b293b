"""Which requests meet a fault, when a prefix is throttled, and a clock that is off."""

from __future__ import annotations

from tests.stores.cloud.faults import CloudFault, FaultRule, Throttle, met_rule, with_clock_off
from tests.stores.cloud.http1 import answer_in
from tests.stores.cloud.request_kinds import StoreRequest

COMMIT = StoreRequest("conditional_put", "c/orders-0/_delta_log/7.json")


def test_a_rule_is_met_so_many_times_by_requests_of_its_kinds_and_keys() -> None:
    rules = [FaultRule(CloudFault.LOSE_ANSWER, frozenset({"conditional_put"}), "*/_delta_log/*.json", times=2)]
    assert met_rule(rules, StoreRequest("get", COMMIT.key), 0.0) is None
    assert met_rule(rules, StoreRequest("conditional_put", "c/x"), 0.0) is None
    assert [met_rule(rules, COMMIT, 0.0) is rules[0] for _ in range(3)] == [True, True, False]


def test_a_rule_with_a_share_is_met_by_that_part_of_the_requests() -> None:
    rule = FaultRule(CloudFault.DENY, times=None, share=0.25)
    assert sum(rule.is_met(COMMIT, number / 100) for number in range(100)) == 25


def test_a_rule_is_the_same_after_its_way_through_the_control_port() -> None:
    rule = FaultRule(CloudFault.LATE, frozenset({"put"}), "a*", None, 0.5, 10.0)
    assert FaultRule.from_json(rule.to_json()) == rule


def test_prefixes_reads_and_writes_are_throttled_apart() -> None:
    throttle = Throttle(writes_per_s=3, reads_per_s=5)
    get = StoreRequest("get", "c/x")
    assert sum(throttle.admits(COMMIT, "a", 1.0) for _ in range(9)) == 3
    assert sum(throttle.admits(get, "a", 1.0) for _ in range(9)) == 5
    assert sum(throttle.admits(COMMIT, "b", 1.0) for _ in range(9)) == 3
    assert sum(throttle.admits(COMMIT, "a", 1.0 + number) for number in range(1, 5) for _ in range(9)) == 12


def test_an_answer_of_a_clock_that_is_off_has_other_times_and_the_same_rest() -> None:
    body = b"<R><Key>a</Key><LastModified>2026-11-30T23:30:00.123Z</LastModified></R>"
    head = b"HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 23:30:00 GMT\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = answer_in(head + body, "GET")
    assert answer is not None
    assert with_clock_off(answer, 0) == head + body
    shifted = answer_in(with_clock_off(answer, 7_200), "GET")
    assert shifted is not None
    assert shifted.head.get("date") == "Tue, 01 Dec 2026 01:30:00 GMT"
    assert shifted.body == b"<R><Key>a</Key><LastModified>2026-12-01T01:30:00.123Z</LastModified></R>"


def test_the_length_of_an_answer_without_a_body_stays() -> None:
    head = b"HTTP/1.1 200 OK\r\nLast-Modified: Mon, 30 Nov 2026 23:30:00 GMT\r\nContent-Length: 123\r\n\r\n"
    answer = answer_in(head, "HEAD")
    assert answer is not None
    assert with_clock_off(answer, -3_600) == head.replace(b"23:30", b"22:30")
