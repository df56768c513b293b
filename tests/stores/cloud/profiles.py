"""How long a simulated store takes for a request: lognormal distributions by kind of request. Pure, but for the file.

I/O: reads `profiles.toml`, which has each profile's numbers with their sources.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROFILES = Path(__file__).with_name("profiles.toml")
Z_99 = 2.326
"""The standard normal distribution's 99th percentile."""
REFUSED = "refused"
TIMED_AS = {"copy": "put"}
"""Kinds of requests without a time of their own."""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The distribution whose median is `p50_ms` and whose 99th percentile is `p99_ms`.

    >>> times = Lognormal(30.0, 88.0)
    >>> [round(times.ms(z), 1) for z in (0.0, 1.2816, 2.326)]
    [30.0, 54.3, 88.0]
    """

    p50_ms: float
    p99_ms: float

    def ms(self, z: float) -> float:
        """The value at `z`, a value of the standard normal distribution."""
        return self.p50_ms * math.exp(self.sigma * z) if self.p50_ms else 0.0

    @property
    def sigma(self) -> float:
        """Of the logarithm."""
        return math.log(self.p99_ms / self.p50_ms) / Z_99 if self.p50_ms else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """One store.

    times                    by kind of request (`request_kinds.KINDS`), and `refused`
    writes_per_s, reads_per_s  what a prefix takes; 0: without a bound
    """

    name: str
    times: Mapping[str, Lognormal]
    writes_per_s: int = 0
    reads_per_s: int = 0
    sources: str = ""

    def request_ms(self, kind: str, z: float) -> float:
        """The time of a request of this kind. KeyError for an unknown one."""
        return self.times[TIMED_AS.get(kind, kind)].ms(z)

    @classmethod
    def constant(cls, ms: float) -> Self:
        """Every request takes so long; 0 is a relay that only counts."""
        kinds = ("put", "conditional_put", "get", "head", "list", "delete", REFUSED)
        return cls(f"{ms:g} ms", dict.fromkeys(kinds, Lognormal(ms, ms)))

    @classmethod
    def of_toml(cls, name: str, table: Mapping[str, object]) -> Self:
        """A table of `profiles.toml`. ValueError for a distribution that is none."""
        times = {}
        for kind, value in table.items():
            if isinstance(value, list):
                p50_ms, p99_ms = map(float, value)
                if not 0 < p50_ms <= p99_ms:
                    raise ValueError(f"{name}.{kind}: 0 < p50 <= p99 does not hold for {value}")
                times[kind] = Lognormal(p50_ms, p99_ms)
        writes, reads = (int(str(table[key])) for key in ("writes_per_s", "reads_per_s"))
        return cls(name, times, writes, reads, str(table["sources"]).strip())


def profiles(text: str) -> dict[str, Profile]:
    """The profiles of a TOML text by name."""
    return {name: Profile.of_toml(name, table) for name, table in tomllib.loads(text).items()}


def named_profile(name: str) -> Profile:
    """A profile of `profiles.toml`, or `25ms`, which is constant. ValueError names those that there are."""
    if name.removesuffix("ms").replace(".", "", 1).isdecimal():
        return Profile.constant(float(name.removesuffix("ms")))
    known = profiles(PROFILES.read_text(encoding="utf-8"))
    if name not in known:
        raise ValueError(f"no profile {name!r}; there are {', '.join(known)}, and constant ones such as 25ms")
    return known[name]
