"""Log, brokers, listeners and clients are imported without Spark, and without any other package of an extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]
IMPORT_ALL = """
import json, sys
from importlib import import_module
from pkgutil import walk_packages
from stratalog.storage.extras import EXTRA_OF

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRA_OF:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
failed = []
for room in ("wire", "storage", "replication", "server", "clients", "jobs"):
    package = import_module(f"stratalog.{room}")
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        try:
            import_module(found.name)
        except ModuleNotFoundError:
            failed.append(found.name)
import stratalog
try:
    stratalog.register_data_source
except ImportError as error:
    told = str(error)
from stratalog.jobs.typed_table import main
given = ["--root", "r", "--topic", "t", "--table", "t", "--config", "value.format=json"]
from importlib.metadata import packages_distributions
installed = packages_distributions()
used = {each for name in list(sys.modules) for each in installed.get(name.partition(".")[0], ())}
print(json.dumps([failed, told, main(given), sorted(used)]))
"""
WITH_SPARK = (
    "stratalog.replication.fast_start.", "stratalog.replication.spark.", "stratalog.clients.spark.",
    "stratalog.clients.typed_tables.", "stratalog.jobs.demo.", "stratalog.jobs.typed_table",
)  # fmt: skip
WITH_SCHEMAS = ("stratalog.clients.schemas.",)
WITH_OBSTORE = ("stratalog.storage.objects.remote",)
WITH_CONSOLE = tuple(
    f"stratalog.clients.console.{name}" for name in ("agents", "application", "guard", "pages", "serving")
)


PROJECT_FILE = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED = {re.match(r"[\w-]+", each).group() for each in PROJECT_FILE["dependencies"]}  # type: ignore[union-attr]
BROUGHT_ALONG = {
    "stratalog",
    "cloudpickle",
    "typing_extensions",
    "setuptools",
    "hypothesis",
    "sortedcontainers",
    "tzdata",
}
"""What the declared packages need, or use where it is installed, and what a virtual environment has."""
OF_PYTEST = {"pytest", "pluggy", "iniconfig", "Pygments"}
"""What pytest has, whose plugin is a module of the clients."""


def test_no_module_outside_of_sparks_parts_needs_an_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=120
    )
    failed, told, exit_code, used = json.loads(done.stdout)
    with_extras = WITH_SPARK + WITH_SCHEMAS + WITH_OBSTORE + WITH_CONSOLE
    assert [name for name in failed if not name.startswith(with_extras)] == []
    assert told == "stratalog.register_data_source needs the package pyspark: pip install 'stratalog[spark]'"
    assert exit_code == 1
    assert "stratalog.stratalog_session needs the package p" in done.stderr
    wheels = {name.replace("-", "_") for name in DECLARED}  # as some name themselves where they are installed
    assert set(used) - DECLARED - wheels - BROUGHT_ALONG - OF_PYTEST == set()
