"""Which go commands build the programs, and which versions of the clients they have."""

from __future__ import annotations

import re

import pytest

from tests.lab.foreign.go.program import GO, SOURCES, version


@pytest.mark.parametrize(
    ("printed", "is_enough"),
    [
        ("go version go1.26.8 linux/amd64\n", True),
        ("go version go1.27rc1 linux/arm64\n", True),
        ("go version go1.19.8 linux/amd64\n", False),
        ("go version devel +8a1c1f2 linux/amd64\n", False),
        ("", False),
    ],
)
def test_a_go_command_of_go_mods_version_or_newer_builds_the_programs(printed: str, is_enough: bool) -> None:
    assert GO.is_new_enough(printed) == is_enough


def test_the_version_that_is_asked_for_is_the_one_of_go_mod() -> None:
    required = re.search(r"^go 1\.(\d+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert required is not None
    assert GO.is_new_enough(f"go version go1.{required[1]}.0 linux/amd64")
    assert not GO.is_new_enough(f"go version go1.{int(required[1]) - 1}.9 linux/amd64")


def test_a_module_has_the_version_of_go_mod() -> None:
    assert re.fullmatch(r"1\.\d+\.\d+", version("github.com/twmb/franz-go"))
    assert version("github.com/twmb/franz-go") != version("github.com/twmb/franz-go/pkg/kadm")
