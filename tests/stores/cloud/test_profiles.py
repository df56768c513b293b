"""The times of a simulated store follow the published numbers, and are the same for the same seed."""

from __future__ import annotations

import random

import pytest

from tests.stores.cloud.profiles import PROFILES, REFUSED, Lognormal, Profile, named_profile, profiles
from tests.stores.cloud.request_kinds import KINDS

NAPKIN_P90 = {"put": 54.0, "get": 40.0, "list": 29.0, REFUSED: 13.0}
"""Published, but no parameter of the distribution: how well a lognormal fits."""


def drawn(times: Lognormal, seed: int, count: int = 20_000) -> list[float]:
    chance = random.Random(seed)
    return sorted(times.ms(chance.gauss(0.0, 1.0)) for _ in range(count))


@pytest.mark.parametrize("name", ["fast", "slow", "express", "azure"])
def test_drawn_times_have_the_median_and_the_99th_percentile_of_their_profile(name: str) -> None:
    profile = named_profile(name)
    for kind in ("put", "get", REFUSED):
        times = profile.times[kind]
        values = drawn(times, 7)
        assert values[10_000] == pytest.approx(times.p50_ms, rel=0.02)
        assert values[19_800] == pytest.approx(times.p99_ms, rel=0.05)


def test_the_90th_percentiles_of_fast_are_no_lower_than_the_published_ones() -> None:
    for kind, p90_ms in NAPKIN_P90.items():
        assert p90_ms <= named_profile("fast").times[kind].ms(1.2816) <= 1.4 * p90_ms


def test_the_same_seed_draws_the_same_times() -> None:
    times = Lognormal(30, 88)
    assert drawn(times, 1, 10) == drawn(times, 1, 10)
    assert drawn(times, 1, 10) != drawn(times, 2, 10)


def test_every_profile_times_every_kind_and_names_its_sources() -> None:
    for profile in profiles(PROFILES.read_text(encoding="utf-8")).values():
        for kind in (*KINDS, REFUSED):
            assert profile.request_ms(kind, 0.0) > 0
        assert "https://" in profile.sources or "Assumed throughout" in profile.sources
        assert profile.writes_per_s > 0
        assert profile.reads_per_s > 0


def test_a_constant_profile_takes_the_same_time_for_every_request() -> None:
    assert {named_profile("25ms").request_ms(kind, 3.0) for kind in KINDS} == {25.0}
    assert Profile.constant(0).request_ms("put", 3.0) == 0.0


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="no profile 'fats'; there are fast, slow, express, azure, and constant"):
        named_profile("fats")
    with pytest.raises(ValueError, match=r"odd.put: 0 < p50 <= p99 does not hold for \[9, 3\]"):
        profiles("[odd]\nput = [9, 3]")
