"""The public names of `stratalog`: complete, typed, documented, and loaded when they are first used."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for name in stratalog.__all__ if name != "__version__"]


def imported_for_types() -> dict[str, str]:
    """Name -> module of the imports below `if TYPE_CHECKING`."""
    tree = ast.parse((ROOT / "stratalog" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def modules_after(statement: str) -> set[str]:
    """What a fresh Python process has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_every_public_name_is_in_the_lazy_table_and_typed() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) == imported_for_types().keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_comes_from_its_own_module_and_is_documented(name: str) -> None:
    value, module = getattr(stratalog, name), imported_for_types()[name]
    assert value is getattr(importlib.import_module(module), name)
    assert value.__module__ == module
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")  # what `dataclass` writes without a docstring


def test_dir_shows_the_public_names() -> None:
    assert set(stratalog.__all__) <= set(dir(stratalog))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'stratalog' has no attribute 'Broker'"):
        stratalog.Broker  # noqa: B018


def test_the_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("stratalog") == stratalog.__version__


def test_the_types_are_for_users_too() -> None:
    assert (ROOT / "stratalog" / "py.typed").is_file()


def test_the_front_door_alone_loads_nothing() -> None:
    loaded = modules_after("import stratalog")
    assert {name for name in loaded if name.startswith("stratalog.")} == set()
    assert loaded & {"pyspark", "numpy", "pyarrow", "deltalake"} == set()


def test_a_client_loads_no_spark() -> None:
    loaded = modules_after("from stratalog import Consumer, Producer, TopicPartition")
    assert "stratalog.clients.consumer.consumer" in loaded
    assert "pyspark" not in loaded


def test_sparks_data_source_loads_no_broker() -> None:
    loaded = modules_after("import pyspark_stratalog")
    brokers = ("stratalog.replication.broker.", "stratalog.server.process.")
    assert {name for name in loaded if name.startswith(brokers)} == set()
