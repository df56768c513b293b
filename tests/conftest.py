"""The fixtures of every test: a Spark session made on first use, and new roots on disk."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from stratalog.wire.messages import values
from tests import domains
from tests.readers import other_readers
from tests.stores import servers
from tests.stores.servers import StoreServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

values.NAMES_ARE_CHECKED = True
LACKING = {name: reason for name, reason in servers.lacking().items() if reason}
if other_readers.LACKING:
    LACKING["readers"] = f"{', '.join(other_readers.LACKING)} is not installed: make test-readers"
FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"
"""The options of a JVM that lives for minutes: its second compiler costs more CPU time than it saves in that time."""


FAST = {
    "stratalog.clients.schemas.columns.avro": ("read_fast",),
    "stratalog.storage.files.batch_file": ("encode_fast",),
}
"""Functions of a `_fast` twin, by importing module. They return None where the other implementation is used, with
STRATALOG_TESTS_WITHOUT_FAST=1 always."""


# `make test` draws the same examples each time; `make test-long` draws new ones, with --hypothesis-profile=random.
hypothesis.settings.register_profile("random", derandomize=False, deadline=None)
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("same")


ON_SPARK = "on Spark"
LONG_FOLDERS = ("lab", "docs", "simulation", "jobs", "stores", "replication")
"""The longest of them, the longest first: the last ones have to be short, or they run in one process alone."""


NOT_QUICK = Path(__file__).with_name("not_quick.txt")
"""The tests that `make quick` leaves out, a file or a function a line: they start clusters or processes, or wait."""
NOT_QUICK_FOLDERS = ("lab", "spark", "stores", "docs", "jobs", "simulation", "readers", "front_door")
OF_CHECK = ("test_tidy.py", "test_quick.py", "test_doctests.py")
"""Files that read the whole tree."""
QUICK_S_MAX = 0.5
"""CPU time of this process that a test of `make quick` may take, with the set-up of its fixtures."""
BEGUN_S = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="pure, contract and scenario tests; none may take long")
    parser.addoption("--part", default="1/1", help="of the files of --quick, as 1/2: `tests.quick`")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are made, and none is garbage: the collector would visit them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, whole folders, and files that are listed or another part's, are not even read."""
    if not config.getoption("--quick"):
        return None
    parts = collection_path.relative_to(config.rootpath).parts
    if len(parts) > 1 and parts[1] in NOT_QUICK_FOLDERS + OF_CHECK:
        return True
    is_file = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_file and collection_path not in _files_of_part(config.getoption("--part")) else None


@functools.cache
def _left_out() -> frozenset[str]:
    return frozenset(NOT_QUICK.read_text(encoding="utf-8").split())


@functools.cache
def _files_of_part(part: str) -> frozenset[Path]:
    """The files of a part: the larger ones first, each goes to the part that has least so far."""
    number, count = map(int, part.split("/"))
    tests = NOT_QUICK.parent
    files = [path for path in tests.rglob("test_*.py") if str(path.relative_to(tests.parent)) not in _left_out()]
    files = [path for path in files if path.relative_to(tests).parts[0] not in NOT_QUICK_FOLDERS + OF_CHECK]
    sizes, found = [0] * count, [list[Path]() for _ in range(count)]
    for size, path in sorted(((path.stat().st_size, path) for path in files), reverse=True):
        least = sizes.index(min(sizes))
        sizes[least] += size
        found[least].append(path)
    return frozenset(found[number - 1])


def _leave_out_the_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if item.nodeid.partition("[")[0] in _left_out()]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item.nodeid.partition("[")[0] not in _left_out()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """With --quick a test that computes for long fails: CPU time, so that a busy machine is not to blame."""
    yield
    took_s = time.process_time() - item.stash[BEGUN_S]
    if item.config.getoption("--quick") and took_s > QUICK_S_MAX:
        pytest.fail(f"{took_s:.1f} s of CPU > {QUICK_S_MAX} s: make it faster, or name it in {NOT_QUICK.name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With the switch of `tests.domains` on, a test that looks for a replica in a broker's root is not applicable."""
    report = yield
    if report.failed and call.excinfo is not None and domains.looks_into_a_root(call.excinfo.value):
        report.outcome = "skipped"
        reason = "Skipped: not applicable in a storage domain: it looks for a replica in a broker's root"
        report.longrepr = str(item.path), item.location[1] or 0, reason
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that uses the Spark session is marked `spark`. With several processes the longest files come first."""
    if config.getoption("--quick"):
        _leave_out_the_slow(config, items)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: (
                not _is_on_spark(item.path),
                _place(config, item.path),
            )
        )


@functools.cache
def _is_on_spark(file: Path) -> bool:
    """True when its tests use the Spark session. An error here only starts a second session."""
    return "spark: SparkSession" in file.read_text(encoding="utf-8")


def _place(config: pytest.Config, file: Path) -> int:
    folder = file.relative_to(config.rootpath / "tests").parts[0]
    return LONG_FOLDERS.index(folder) if folder in LONG_FOLDERS else len(LONG_FOLDERS)


class ByFile(LoadFileScheduling):
    """A process runs whole files, whose tests share the fixtures of a module; those on Spark share one session."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return ON_SPARK if _is_on_spark(self.config.rootpath / file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    """The scheduler of tests for `--numprocesses`."""
    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose server is not installed is skipped."""
    item.stash[BEGUN_S] = time.process_time()
    for name in LACKING.keys() & _fixtures_of(item):
        pytest.skip(LACKING[name])


def _fixtures_of(item: pytest.Item) -> set[str]:
    """The fixtures that a test uses, also those that a parameter names."""
    call = getattr(item, "callspec", None)
    named = call.params.values() if call else ()
    return {*getattr(item, "fixturenames", ()), *(value for value in named if isinstance(value, str))}


@pytest.fixture(scope="session", autouse=True)
def _without_fast() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("STRATALOG_TESTS_WITHOUT_FAST") == "1":
            for module, names in FAST.items():
                for name in names:
                    patch.setattr(f"{module}.{name}", lambda *_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _in_domains() -> Iterator[None]:
    with domains.in_domains():
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, ours unless `tests.spark.sessions` finds another kind asked for.

    The logs of its JVM are in the run's temporary folder.
    """
    from tests.spark import sessions

    with sessions.running(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def ours(spark: SparkSession) -> SparkSession:
    """The session where it is ours; a test that needs Delta Lake, or Spark's JVM, is skipped in others."""
    from tests.spark import sessions

    if sessions.kind() != "ours":
        pytest.skip(f"a session of the kind {sessions.kind()} has no Delta Lake")
    return spark


@pytest.fixture(scope="session")
def readers() -> None:
    """Of tests that need other engines' readers of Delta and Arrow."""


@pytest.fixture(scope="session")
def moto() -> Iterator[StoreServer]:
    with servers.s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[StoreServer]:
    with servers.versity_server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[StoreServer]:
    with servers.azure_server() as server:
        yield server


@pytest.fixture
def s3_server(moto: StoreServer) -> Iterator[StoreServer]:
    """moto's S3 server, which `open_store` finds during the test."""
    yield from _found(moto)


@pytest.fixture
def versity_server(versitygw: StoreServer) -> Iterator[StoreServer]:
    """The S3 server versitygw, which `open_store` finds during the test."""
    yield from _found(versitygw)


@pytest.fixture
def azure_server(azurite: StoreServer) -> Iterator[StoreServer]:
    """An Azure Blob emulator, which `open_store` finds during the test."""
    yield from _found(azurite)


def _found(server: StoreServer) -> Iterator[StoreServer]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        yield server


@pytest.fixture
def cluster_root(tmp_path: Path) -> Path:
    """A folder for `Cluster.start` that does not exist yet."""
    return tmp_path / "cluster"


@pytest.fixture
def broker_root(tmp_path: Path) -> Callable[[int], Path]:
    """`broker_root(2)`: the empty folder of broker 2, the same one at each call."""

    def root(broker_id: int) -> Path:
        folder = tmp_path / "cluster" / f"broker-{broker_id}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    return root
