"""What a user reads where a package is missing that an extra brings, or is of another version."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from stratalog.storage.extras import check_pyspark, explained


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0.dev1", "4.10.3", "of my own"])
def test_these_serve(version: str) -> None:
    check_pyspark(version)


@pytest.mark.parametrize("version", ["3.5.6", "4.1.0", "4.1.1.dev0", "5.0.0"])
def test_these_do_not(version: str) -> None:
    with pytest.raises(
        ImportError, match=f"pyspark {version} is installed, and stratalog needs at least 4.2 and below 5"
    ):
        check_pyspark(version)


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pyspark.sql", "spark"), ("delta", "spark"), ("rich", "demo"), ("google.protobuf", "schemas")],
)
def test_the_extra_of_a_missing_package_is_named(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    package = module.partition(".")[0]
    error = explained("stratalog.X", ModuleNotFoundError("No module", name=module))
    assert str(error) == f"stratalog.X needs the package {package}: pip install 'stratalog[{extra}]'"


def test_an_older_pyspark_explains_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("pyspark")
    older.__version__ = "4.0.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", older)
    reason = ModuleNotFoundError("No module named 'pyspark.sql.datasource'", name="pyspark.sql.datasource")
    assert "pyspark 4.0.1 is installed" in str(explained("stratalog's source", reason))


def test_what_no_extra_brings_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    for reason in (ModuleNotFoundError("", name="pyarrow"), ImportError("", name="rich")):
        assert explained("x", reason) is reason
