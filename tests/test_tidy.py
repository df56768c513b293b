"""The house rules as tests: who imports whom, who does I/O, how long things are, what must not stand in the tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("storage", "replication", "clients", "jobs", "notebooks")
"""From the bottom up: a room imports itself and those before it."""

LIBRARY = ("storage", "replication", "clients")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

IO_MODULES = {"obstore", "deltalake", "pyspark", "delta", "py4j", "socket", "subprocess"}
"""What a module that calls itself pure does not import, besides time, randomness and ids."""

CHANCE_MODULES = {"time", "random", "uuid", "secrets"}
FROM_ARGUMENTS = {"random.Random", "uuid.UUID", "uuid.uuid5", "uuid.NAMESPACE_URL"}
"""What may be used of them anywhere: values and types whose content comes from their arguments."""

MACHINE_PATH = re.compile(r"(?<![\w.}~-])/(?:home|root|work|farm|tmp|Users)/\w")
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|NotImplemente[d]Error)\b|mark\.(?:ski[p]|xfai[l])")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".conf", ".properties", ".txt", ".yml", ".sh"}
MADE = {".git", ".venv", "data", "logs", "build", "dist", "spark-warehouse", "__pycache__"}


def project_files() -> list[Path]:
    """Every text file of the project, as paths below its root."""
    tops = [top for top in ROOT.iterdir() if top.name not in MADE and not top.name.endswith("_cache")]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    texts = [path for path in found if path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "run")]
    return sorted(path.relative_to(ROOT) for path in texts if path.is_file() and not MADE & set(path.parts))


def python_files(*rooms: str) -> list[Path]:
    """Python files of these rooms; of the whole project when none is named."""
    files = [path for path in project_files() if path.suffix == ".py"]
    return [path for path in files if not rooms or path.parts[0] in rooms]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import, also of those inside functions."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def top(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def chance_in(path: Path) -> Iterator[str]:
    """Uses of the system's time and of chance: `time.monotonic`, `uuid.uuid4`, `random.choice` …"""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module in CHANCE_MODULES:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in CHANCE_MODULES:
            names = [f"{node.value.id}.{node.attr}"]
        else:
            continue
        yield from (f"{path}:{node.lineno}: {name}" for name in names if name not in FROM_ARGUMENTS)


def docstring_of(path: Path) -> str:
    return ast.get_docstring(tree_of(path)) or ""


def is_pure(path: Path) -> bool:
    return bool(re.search(r"\bPure\b", docstring_of(path))) and "I/O" not in docstring_of(path)


def lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_itself_and_the_rooms_below(room: str) -> None:
    above = {*ROOMS[ROOMS.index(room) + 1 :], "tests"}
    upward = [
        f"{path}:{line}: {name}" for path in python_files(room) for line, name in imports_of(path) if top(name) in above
    ]
    assert upward == []


def test_a_module_says_whether_it_is_pure_or_does_io() -> None:
    files = [path for path in python_files(*LIBRARY) if path.name != "__init__.py"]
    assert [str(path) for path in files if not is_pure(path) and "I/O" not in docstring_of(path)] == []


def test_a_pure_module_imports_no_io() -> None:
    impure = [
        f"{path}:{line}: {name}"
        for path in python_files(*LIBRARY)
        if is_pure(path)
        for line, name in imports_of(path)
        if top(name) in IO_MODULES
    ]
    assert impure == []


def test_a_pure_module_imports_no_room_module_that_does_io() -> None:
    """Values and ports are pure, so a rule needs no module that does I/O, not even for a type."""
    files = {".".join(path.with_suffix("").parts): path for path in python_files(*LIBRARY)}
    impure = [
        f"{path}:{line}: {name}"
        for path in files.values()
        if is_pure(path)
        for line, name in imports_of(path)
        if name in files and not is_pure(files[name]) and name != "stratalog.storage.clock"
    ]
    assert impure == []


def test_time_chance_and_fresh_ids_come_from_the_clock_module_alone() -> None:
    files = [path for path in python_files(*LIBRARY) if path.as_posix() != "storage/clock.py"]
    assert [use for path in files for use in chance_in(path)] == []


def test_obstore_is_imported_by_the_store_alone() -> None:
    files = [path for path in python_files(*LIBRARY) if path.as_posix() != "storage/store.py"]
    assert [str(path) for path in files if "obstore" in {top(name) for _, name in imports_of(path)}] == []


def test_a_module_that_imports_spark_says_so_and_is_not_in_storage() -> None:
    """Spark stands behind `I/O:` in the module's docstring, so that one sees where it is needed."""
    unsaid = [
        f"{path}:{line}: {name}"
        for path in python_files(*LIBRARY)
        for line, name in imports_of(path)
        if top(name) in {"pyspark", "delta", "py4j"}
        and (path.parts[0] == "storage" or "spark" not in docstring_of(path).partition("I/O")[2].lower())
    ]
    assert unsaid == []


def test_every_module_has_postponed_annotations() -> None:
    with_code = [path for path in python_files(*LIBRARY, "jobs", "tests") if len(tree_of(path).body) > 1]
    lacking = [str(path) for path in with_code if "__future__" not in {name for _, name in imports_of(path)}]
    assert lacking == []


def test_a_file_is_one_noun_of_at_most_500_lines() -> None:
    counts = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {path: count for path, count in counts.items() if count > FILE_LINES_MAX} == {}


def test_a_function_has_at_most_70_lines() -> None:
    functions = [
        (path, node)
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    lengths = {f"{path}:{node.lineno}: {node.name}": code_lines(node) for path, node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring_lines


def test_no_path_of_one_machine_stands_in_the_project() -> None:
    assert lines_matching(MACHINE_PATH, project_files()) == []


def test_nothing_is_unfinished_or_switched_off() -> None:
    assert lines_matching(UNFINISHED, python_files()) == []


def test_the_tests_mirror_the_rooms() -> None:
    """A folder below tests/ is a room's name or a kind of test."""
    kinds = {*ROOMS, "contract", "scenarios", "simulation", "spark", "bench", "real", "stores", "docs"}
    folders = {path.parts[1] for path in python_files("tests") if len(path.parts) > 2}
    assert folders - kinds == set()


def test_the_rooms_do_not_hide_standard_library_modules() -> None:
    assert set(ROOMS) & set(sys.stdlib_module_names) == set()
