"""The house rules as tests: who imports whom, who does I/O, how long things are, what must not stand in the tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from stratalog.wire.api_keys import ApiKey

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("storage", "wire", "replication", "server", "clients", "jobs", "notebooks")
"""The top-level folders with code, from the bottom up."""

LIBRARY = ("storage", "wire", "replication", "server", "clients")
FLOORS = {
    ".": "storage < wire < replication < server < clients < jobs < notebooks",
    "storage": """errors clock log_lines extras cadence < step_times < config_def metering
        < records topic_config objects layered_map < files transactions < producers < delta < log < upkeep""",
    "storage/metering": "purpose prices < calls < cost",
    "storage/objects": """distance < port registers new_file sync store_settings together < probe memory
        place_settings < local wakeup < remote < opened""",
    "wire": "api_keys kafka_types java_strings < consumer_protocol messages batches",
    "wire/messages": "response schema < values < error_codes < layouts < frames",
    "wire/batches": "compression < headers < columns < record_batches",
    "replication": """cadence folders < log_configs host_address shared_fold
        < config client_pattern html_table < stores threads < conf_files internal_topics price_lists < requests
        < metadata metrics < broker_root controller progress < replica < leader < follower coordinator
        < broker fast_start < spark""",
    "replication/coordinator": "shard server_assignors topic_matches < groups transactions < runtime",
    "server": """bootstrap offset_spec http_redirects < view < metrics lag < process < admin batches < audit < request
        < apis quotas < handler < endpoint < remote < cluster""",
    "server/endpoint": """listeners frames order admission endpoint_metrics < inbox_channel loops io_threads security
        < connection inbox_listener < socket_server inbox_endpoint < kafka_endpoint""",
    "server/endpoint/security": """jaas principal_mapping certificates sasl_server watched_context
        < plain scram oauthbearer < authenticator jwks tls < gate < endpoint_security""",
    "server/remote": """connections messages between_brokers < inter_broker places < inbox_channel < routes
        < remote_broker < remote_cluster < heartbeats""",
    "server/remote/connections": """config open_requests login < security request_connection
        < broker_connection inbox_connection""",
    "clients": """serialization records client_view < config < coordinator_calls connected_cluster < producer consumer
        < admin < schemas wire < spark < typed_tables testing < console""",
    "clients/console": """shown_text times beside < asker < question < schemas < typed < stored < over_time < questions
        < changes < sql < catalogue doors silence < sessions pages guard < agents application < serving""",
    "clients/console/stored": """storage timeline commits < differences past pages
        < as_of erasure files record_way who_led""",
    "clients/console/over_time": "intervals chart ends pages < arrivals past_lag < rates < lags",
    "clients/console/sql": "bounds json_path < typed < tables engine < child < sql",
    "clients/schemas": """wire_format errors json_patterns < schema < compatibility rest_client protobuf_messages
        < avro_binary < avro_values < registry_state < folded_schemas < schema_folder serde < avro json_schema protobuf
        < columns""",
    "clients/schemas/compatibility": "json_nodes < json_schema < avro protobuf < levels",
    "clients/schemas/columns": """avro_fast json_text prefixes < reader < avro json_schema protobuf
        < avro_writing < json_writing protobuf_writing < writer""",
    "jobs": """command < text demo < topics records replicas completion console typed_table < console_port mcp
        < broker cluster < strata < completion_table""",
}
"""A folder -> its files and packages, lowest floor first: one imports itself and lower floors, not its neighbours."""

PACKAGE_FILES_MAX = 15
TEST_FOLDER_FILES_MAX = 20
PACKAGE_LINES_MAX = 3_000
FILE_LINES_MAX = 800
"""A file is one concept, 100 to 700 lines; only above this it is asked whether it still is."""

FUNCTION_LINES_MAX = 70
LOOP_ATTRIBUTES_MAX = 12
"""What a class of `replication/broker` sets on itself, at most."""
CONSTRUCTOR_ARGUMENTS_MAX = 6

IO_MODULES = {"obstore", "deltalake", "pyspark", "delta", "py4j", "socket", "subprocess"}
"""What a module that calls itself pure does not import, besides time, randomness and ids."""

OWN_PATTERNS = {"clients/consumer/consumer.py", "clients/spark/offsets.py", "clients/spark/options.py"}
"""Where Python's `re` gets an expression that the process's own user wrote: it holds up nobody else."""

CHANCE_MODULES = {"time", "random", "uuid", "secrets"}
FROM_ARGUMENTS = {"random.Random", "uuid.UUID", "uuid.uuid5", "uuid.NAMESPACE_URL"}
"""What may be used of them anywhere: values and types whose content comes from their arguments."""

PRIVATE_REACHES_MAX = 41
"""How often tests use private names of the product."""
TUPLE_METHODS = {"_replace", "_asdict", "_fields", "_make", "_repr_html_"}
"""Those of named tuples, and of what a notebook shows, are public in spite of their names."""
PATCHES = {"setattr", "getattr", "delattr", "object"}

TIME_NAME = re.compile(r"(?<!_PER)_(?:MS|S)(?:_M(?:AX|IN))?$")
WAITS = {"sleep_ms", "wait_ms"}
NO_PAUSES = {
    "replication/broker/inbox.py: ANSWER_KEEP_MS",
    "replication/threads/interpreter.py: LARGE_SWITCH_INTERVAL_S",
    "replication/threads/interpreter.py: SWITCH_INTERVAL_S",
    "storage/delta/commit_json.py: ISO_MAX_MS",
}
"""Times outside the tables: a timestamp, settings of Python's interpreter, and an age that is still to move."""

MACHINE_PATH = re.compile(r"(?<![\w.}~-])/(?:home|root|work|farm|tmp|Users)/\w")
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|NotImplemente[d]Error)\b|mark\.(?:ski[p]|xfai[l])")
MAP_LINE = re.compile(r"^(\w+/?(?:, \w+/?)*)  ", re.MULTILINE)
"""The names at the head of a line of a package's docstring."""
TEXT_SUFFIXES = {".py", ".md", ".toml", ".conf", ".properties", ".txt", ".yml", ".sh"}
ROOM_SUFFIXES = TEXT_SUFFIXES | {".gz", ".json", ".html", ".css", ".js", ".svg"}
"""Of sources, of the log that the demo sends, of the table that completions are made of, and of the console's pages."""
MADE = {".git", ".venv", "data", "logs", "build", "dist", "spark-warehouse", "__pycache__"}


def project_files() -> list[Path]:
    """Every text file of the project, as paths below its root; not again through the links of `stratalog/`."""
    tops = [top for top in ROOT.iterdir() if top.name not in MADE and not top.name.endswith("_cache")]
    found = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]
    texts = [path for path in found if path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "run")]
    files = sorted(path.relative_to(ROOT) for path in texts if path.is_file() and not MADE & set(path.parts))
    return [path for path in files if path.parts[0] != "stratalog" or len(path.parts) == 2]


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


def product_files() -> dict[str, Path]:
    """Dotted name below `stratalog` -> file, of every module of the rooms with product code."""
    return {".".join(path.with_suffix("").parts): path for path in python_files(*ROOMS[:-1])}


def imported_modules(path: Path, modules: Mapping[str, Path]) -> Iterator[tuple[int, Path]]:
    """(line, file) of each import of the product's own modules, also of those inside functions, or by name: a string
    that is a module's dotted name counts as an import."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value.removeprefix("stratalog.")] if node.value.startswith("stratalog.") else []
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stratalog."):
            module = (node.module or "").removeprefix("stratalog.")
            names = {alias.name if f"{module}.{alias.name}" in modules else "" for alias in node.names}
            found = [f"{module}.{name}" if name else module for name in names]
        elif isinstance(node, ast.Import):
            found = [alias.name.removeprefix("stratalog.") for alias in node.names]
        else:
            continue
        yield from ((node.lineno, modules[name]) for name in found if name in modules)


def floors_of(folder: str) -> dict[str, int]:
    """A unit of the folder -> its floor, 0 the lowest."""
    return {unit: floor for floor, units in enumerate(FLOORS[folder].split("<")) for unit in units.split()}


def upward(importer: Path, imported: Path) -> str | None:
    """Why this import breaks the floors; None if it does not."""
    ours, theirs = importer.with_suffix("").parts, imported.with_suffix("").parts
    depth = next(n for n, (own, other) in enumerate(zip(ours, theirs, strict=False)) if own != other)
    folder = "/".join(ours[:depth]) or "."
    if folder not in FLOORS:
        return None
    floors = floors_of(folder)
    if floors[theirs[depth]] < floors[ours[depth]]:
        return None
    return f"{ours[depth]} (floor {floors[ours[depth]]}) imports {theirs[depth]} (floor {floors[theirs[depth]]})"


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


def test_imports_run_down_the_floors() -> None:
    modules = product_files()
    broken = [
        f"{path}:{line}: {reason}"
        for path in modules.values()
        for line, imported in imported_modules(path, modules)
        if imported != path and (reason := upward(path, imported))
    ]
    assert broken == []


@pytest.mark.parametrize("folder", FLOORS)
def test_every_file_and_package_has_a_floor(folder: str) -> None:
    inside = [path.relative_to(folder) for path in python_files(*ROOMS) if path.is_relative_to(folder)]
    units = {path.parts[0].removesuffix(".py") for path in inside} - {"__init__"}
    assert units == floors_of(folder).keys()


def test_files_import_each_other_in_no_circle() -> None:
    modules = product_files()
    graph = {path: {found for _, found in imported_modules(path, modules)} - {path} for path in modules.values()}
    TopologicalSorter(graph).prepare()


def test_the_docstring_of_a_package_is_its_map() -> None:
    """It names each file and package below, and heads no line with a name that is not there."""
    wrong = []
    for package in {path.parent for path in python_files(*ROOMS[:-1])}:
        inside = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/*.py")}
        text = docstring_of(package / "__init__.py")
        heads = {name for line in MAP_LINE.findall(text) for name in re.findall(r"\w+", line)}
        wrong += [f"{package}: says nothing of {name}" for name in inside - {"__init__", *re.findall(r"\w+", text)}]
        folders = {path.name for path in package.iterdir() if path.is_dir()}
        wrong += [f"{package}: {name} is not there" for name in heads - inside - folders]
    assert wrong == []


def test_an_init_file_of_a_room_is_a_docstring_and_nothing_else() -> None:
    inits = [path for path in python_files(*ROOMS[:-1]) if path.name == "__init__.py"]
    assert [str(path) for path in inits if len(tree_of(path).body) != 1] == []


def test_a_package_is_small() -> None:
    """A folder of many files shows nobody what is in it. Tests included, but scenarios, which are texts."""
    folders: dict[Path, list[Path]] = {}
    for path in python_files():
        folders.setdefault(path.parent, []).append(path)
    files_max = {folder: TEST_FOLDER_FILES_MAX if "tests" in folder.parts else PACKAGE_FILES_MAX for folder in folders}
    assert {str(folder): len(files) for folder, files in folders.items() if len(files) > files_max[folder]} == {}
    lines = {folder: sum(map(line_count, files)) for folder, files in folders.items() if folder.parts[:1] != ("tests",)}
    assert {str(folder): count for folder, count in lines.items() if count > PACKAGE_LINES_MAX} == {}


def test_a_public_class_name_is_taken_once() -> None:
    taken: dict[str, list[str]] = {}
    for path in python_files(*ROOMS[:-1]):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                taken.setdefault(node.name, []).append(str(path))
    assert {name: files for name, files in taken.items() if len(files) > 1} == {}


def test_everybody_comes_in_through_the_front_door() -> None:
    """`import storage` would find a user's own folder of that name, or load a module twice."""
    bare = [
        f"{path}:{line}: {name}" for path in python_files() for line, name in imports_of(path) if top(name) in ROOMS
    ]
    assert bare == []


def test_the_front_door_imports_nothing_before_it_is_asked() -> None:
    loading = ast.Module(
        [node for node in tree_of(Path("stratalog/__init__.py")).body if not isinstance(node, ast.If)], []
    )
    modules = {node.module for node in ast.walk(loading) if isinstance(node, ast.ImportFrom)}
    assert modules == {"__future__", "importlib", "typing"}


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
    files = {"stratalog." + ".".join(path.with_suffix("").parts): path for path in python_files(*LIBRARY)}
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


def computed_patterns(path: Path) -> Iterator[str]:
    """Calls of Python's `re` with an expression that is not made of literals and of the module's constants."""
    for node in ast.walk(tree_of(path)):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)
        if not is_call or not isinstance(node.func.value, ast.Name) or node.func.value.id != "re":
            continue
        parts = list(ast.walk(node.args[0]))
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        calls = [part for part in parts if isinstance(part, (ast.Call, ast.Attribute, ast.Subscript))]
        if node.func.attr != "escape" and (calls or not all(name.isupper() for name in names)):
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_no_pattern_of_a_client_reaches_pythons_re() -> None:
    """It backtracks, and holds the interpreter meanwhile: see `replication.client_pattern`."""
    files = [path for path in python_files(*LIBRARY) if path.as_posix() not in OWN_PATTERNS]
    assert [call for path in files for call in computed_patterns(path)] == []
    engines = {"re2", "regex"}
    users = [str(path) for path in files if engines & {top(name) for _, name in imports_of(path)}]
    assert users == ["replication/client_pattern.py"]


def test_loggers_come_from_the_function_that_keeps_their_records_in_one_line() -> None:
    """Names that clients choose are in many messages."""
    allowed = {"storage/log_lines.py", "server/admin/loggers.py", "server/process/text_logs.py"}
    files = [path for path in python_files(*LIBRARY) if path.as_posix() not in allowed]
    assert lines_matching(re.compile(r"\bgetLogger\("), files) == []


def test_the_numbers_of_apis_are_in_one_enum() -> None:
    """Not in a constant of the same name, nor in a call that names an API."""
    constant = rf"^(?:\w+, )*(?:{'|'.join(ApiKey.__members__)})(?:, \w+)* = \(?\d"
    call = r"\b(?:Api|request_type|response_type|served_versions|framed|asked?)\(\d+[,)]"
    files = [path for path in python_files(*LIBRARY, "tests") if path.as_posix() != "wire/api_keys.py"]
    assert lines_matching(re.compile(f"{constant}|{call}"), files) == []


def attributes_set(node: ast.ClassDef) -> set[str]:
    """The attributes that a class's methods set on `self`."""
    stored = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    return {each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self"}


def test_a_part_of_a_brokers_loop_has_few_attributes() -> None:
    classes = [
        node
        for path in python_files("replication")
        if path.parts[1] == "broker"
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    ]
    large = {node.name for node in classes if len(attributes_set(node)) > LOOP_ATTRIBUTES_MAX}
    assert large == set()


def times_in(path: Path) -> Iterator[str]:
    """Numbers of milliseconds or seconds: constants of a module that are named so, and arguments of calls that wait."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            named = zip(target.elts, node.value.elts, strict=True) if both else [(target, node.value)]
            for name, value in named:
                if isinstance(name, ast.Name) and TIME_NAME.search(name.id) and is_number(value):
                    yield f"{path}: {name.id}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            yield from (f"{path}: {node.func.attr}" for each in node.args[:1] if is_number(each))


def is_number(node: ast.expr) -> bool:
    """A positive number, or a calculation from numbers alone."""
    parts = [each for each in ast.walk(node) if not isinstance(each, ast.operator)]
    return all(isinstance(each, ast.BinOp | ast.Constant) for each in parts) and any(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) and each.value for each in parts
    )


def test_a_time_is_a_row_of_a_table_of_its_room() -> None:
    """Or a setting. Elsewhere nobody would see it beside those that it has to agree with."""
    files = [path for path in python_files("storage", "replication") if path.name != "cadence.py"]
    assert {time for path in files for time in times_in(path)} == NO_PAUSES


FINALIZERS = {
    "replication/threads/dropped.py": "it puts the work into a queue",
    "replication/threads/interpreter.py": "its lock is reentrant, and held for settings of the interpreter alone",
    "server/request/fair_threads.py": "it calls `DroppedObjects.now`",
}


def test_what_a_collection_calls_takes_no_lock() -> None:
    """A collection comes between any two steps of any thread, also within the lock that its work would need."""
    is_finalizer = re.compile(r"def __del__\(|\bfinalize\(|\bref\([^()]+,[^()]+\)")
    found = {path.as_posix() for path in python_files(*LIBRARY) if is_finalizer.search(path.read_text("utf-8"))}
    assert found == FINALIZERS.keys(), "use `DroppedObjects.when`"


def test_obstore_is_imported_by_the_store_alone() -> None:
    files = [path for path in python_files(*LIBRARY) if path.as_posix() != "storage/objects/remote.py"]
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


def test_a_file_is_one_concept() -> None:
    counts = {str(path): line_count(path) for path in python_files()}
    assert {path: count for path, count in counts.items() if count > FILE_LINES_MAX} == {}


def line_count(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


NAMED_BY_ID = {
    "replication/requests/produce.py": (),
    "replication/leader/append_queue.py": ("leaders",),
    "replication/requests/delete_records.py": (),
    "replication/leader/delete_records.py": ("leaders",),
    "replication/controller/brokers.py": ("held",),
    "replication/broker/calls.py": ("leaders",),
    "server/bootstrap.py": (),
}
"""Files of requests to replicas and of proposals about them, with the fields and arguments that may name a partition by
its topic's name alone: maps of what is here now, and of answers."""


@pytest.mark.parametrize(("file", "exceptions"), NAMED_BY_ID.items())
def test_requests_and_proposals_name_a_partition_by_its_topic_id(file: str, exceptions: tuple[str, ...]) -> None:
    """Decision 0159: a name is resolved where a request enters. Behind that it would stand for a later topic, too."""
    found = []
    for node in ast.walk(tree_of(Path(file))):
        if isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            found += [(ast.unparse(each.target), each.annotation) for each in fields]
        elif (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")) or _is_constructor(node):
            assert isinstance(node, ast.FunctionDef)
            arguments = [*node.args.args, *node.args.kwonlyargs]
            found += [(each.arg, each.annotation) for each in arguments if each.annotation is not None]
    names = [name for name, annotation in found if re.search(r"\bTopicPartition\b", ast.unparse(annotation))]
    assert [name for name in names if name not in exceptions] == []


def _is_constructor(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def test_a_function_has_at_most_70_lines() -> None:
    functions = [
        (path, node)
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    lengths = {f"{path}:{node.lineno}: {node.name}": code_lines(node) for path, node in functions}
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def test_a_constructor_has_at_most_six_arguments() -> None:
    """What belongs together is a value. `self` does not count, nor do the fields of a dataclass, which is one."""
    counts = {
        f"{path}:{node.lineno}": len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1
        for path in python_files(*ROOMS[:-1])
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    }
    assert {name: count for name, count in counts.items() if count > CONSTRUCTOR_ARGUMENTS_MAX} == {}


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring_lines


def test_no_path_of_one_machine_stands_in_the_project() -> None:
    assert lines_matching(MACHINE_PATH, project_files()) == []


def test_the_rooms_hold_no_made_files() -> None:
    found = [path for room in (*ROOMS, "conf") for path in (ROOT / room).rglob("*") if path.is_file()]
    kept = [path.relative_to(ROOT) for path in found if not MADE & set(path.parts)]
    assert [str(path) for path in kept if path.suffix not in ROOM_SUFFIXES] == []


def test_nothing_is_unfinished_or_switched_off() -> None:
    assert lines_matching(UNFINISHED, python_files()) == []


def test_the_tests_mirror_the_rooms() -> None:
    """A folder below tests/ is a room, a package of a room, or a kind of test."""
    kinds = {"contract", "scenarios", "simulation", "spark", "lab", "stores", "docs", "front_door", "readers", "deploy"}
    packages = {path.parent for path in python_files(*ROOMS[:-1])}
    folders = {path.parent.relative_to("tests") for path in python_files("tests")} - {Path()}
    mirrors = [folder for folder in folders if folder.parts[0] not in kinds]
    assert [str(folder) for folder in mirrors if folder not in packages and folder.name != "oracle"] == []


def private_names(tree: ast.Module) -> set[str]:
    """The names with one leading underscore that a module defines, or that its classes set on `self`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return {name for name in found if re.fullmatch(r"_[a-zA-Z]\w*", name)} - TUPLE_METHODS


def is_own(owner: ast.expr) -> bool:
    return ast.unparse(owner) in {"self", "cls", "super()"}


def reaches_in(path: Path, private: set[str]) -> Iterator[str]:
    """Uses of these names from outside: attributes of others, names in strings of patches, imports."""
    tree = tree_of(path)
    foreign = private - private_names(tree)
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Attribute) and not is_own(node.value):
            found = [node.attr]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in PATCHES:
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            found = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
        elif isinstance(node, ast.ImportFrom):
            found = [alias.name for alias in node.names]
        yield from (f"{path}:{node.lineno}: {name}" for name in found if name in foreign)


def test_tests_reach_into_few_private_names() -> None:
    """A test that does is bound to how something is made. Mutations do it by design: each switches off one rule."""
    product = set[str]().union(*(private_names(tree_of(path)) for path in python_files(*ROOMS[:-1])))
    tests = [path for path in python_files("tests") if not path.stem.endswith("mutations")]
    found = [reach for path in tests for reach in reaches_in(path, product)]
    assert len(found) <= PRIVATE_REACHES_MAX, "\n".join(found)


def test_the_rooms_do_not_hide_standard_library_modules() -> None:
    assert set(ROOMS) & set(sys.stdlib_module_names) == set()
