"""Which cargo commands build the programs, and which versions of the clients they have."""

from __future__ import annotations

import re

import pytest

from tests.lab.foreign.rust.program import RUST, SOURCES, version


@pytest.mark.parametrize(
    ("printed", "is_enough"),
    [
        ("cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n", True),
        ("cargo 1.85.1\n", True),
        ("cargo 1.63.0\n", False),
        ("cargo 0.57.0\n", False),
        ("", False),
    ],
)
def test_a_cargo_command_of_cargo_tomls_version_or_newer_builds_the_programs(printed: str, is_enough: bool) -> None:
    assert RUST.is_new_enough(printed) == is_enough


def test_the_version_that_is_asked_for_is_the_one_of_cargo_toml() -> None:
    required = re.search(r'^rust-version = "1\.(\d+)"', (SOURCES / "Cargo.toml").read_text(), re.MULTILINE)
    assert required is not None
    assert RUST.is_new_enough(f"cargo 1.{required[1]}.0")
    assert not RUST.is_new_enough(f"cargo 1.{int(required[1]) - 1}.9")


def test_a_client_has_the_version_of_cargo_toml() -> None:
    pinned = re.findall(r'^(rskafka|samsa) = .*"=([\d.]+)"', (SOURCES / "Cargo.toml").read_text(), re.MULTILINE)
    assert dict(pinned) == {crate: version(crate) for crate in ("rskafka", "samsa")}
