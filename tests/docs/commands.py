"""The commands of shell blocks, split as a shell does, and checked against the tools' own parsers.

I/O: reads the Makefile; imports the tools.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from stratalog.jobs.command.tool import PROGRAM
from stratalog.jobs.strata import modules
from tests.docs.pages import ROOT

_SEPARATORS = {"|", "||", "&", "&&", ";", "(", ")"}
_REDIRECTIONS = {"<", ">", ">>", "<<<"}
_ASSIGNMENT = re.compile(r"\w+=")
_TARGET = re.compile(r"^([a-z][\w-]*(?: [a-z][\w-]*)*) *:(?!=)", re.MULTILINE)
_PLACEHOLDER = "…"


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block as lists of words, without variables before them, redirections and comments.

    >>> list(commands("ROOT=x\\nseq 3 | strata x --root $ROOT > out  # made"))
    [['seq', '3'], ['strata', 'x', '--root', '$ROOT']]
    """
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        yield from _split(list(lexer))


def _split(words: Sequence[str]) -> Iterator[list[str]]:
    command: list[str] = []
    is_target = False
    for word in [*words, ";"]:
        if word in _SEPARATORS:
            if command:
                yield command
            command = []
        elif is_target:
            is_target = False
        elif word in _REDIRECTIONS:
            is_target = True
        elif command or not _ASSIGNMENT.match(word):
            command.append(word)


@cache
def make_targets() -> set[str]:
    """The targets of the Makefile."""
    found = _TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    return {target for targets in found for target in targets.split()}


def faults(command: Sequence[str], *, is_whole: bool = True) -> list[str]:
    """The faults of a command of stratalog; none for other commands.

    is_whole  False for a command in running text, which may omit arguments: only its flags are checked
    """
    name, *arguments = command
    if name == "make":
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        return [f"make {target}: no such target" for target in targets if target not in make_targets()]
    if name == PROGRAM:
        return _tool_faults(arguments, is_whole)
    if Path(name).name.startswith("python") and arguments[:1] == ["-m"] and len(arguments) > 1:
        return _module_faults(arguments[1], arguments[2:], is_whole)
    if name == "spark-submit":
        return _submit_faults(arguments, is_whole)
    return []


def _tool_faults(arguments: Sequence[str], is_whole: bool) -> list[str]:
    """Of the arguments of `strata`, whose first one names the tool."""
    tool, *rest = arguments or ["--help"]
    if tool in ("--help", "--version"):
        return []
    if tool not in modules():
        return [f"strata {tool}: no such tool"]
    return _flag_faults(modules()[tool], rest, is_whole)


def _module_faults(module: str, arguments: Sequence[str], is_whole: bool) -> list[str]:
    if _spec_origin(module) is None:
        return [f"python -m {module}: no such module"]
    if module == "stratalog":
        return _tool_faults(arguments, is_whole)
    if module.startswith("stratalog.jobs."):
        return _flag_faults(module, arguments, is_whole)
    source = Path(str(_spec_origin(module))).read_text(encoding="utf-8") if module.startswith("tests.") else None
    return [
        f"python -m {module}: no flag {flag}" for flag in _flags(arguments) if source is not None and flag not in source
    ]


def _spec_origin(module: str) -> str | None:
    """The file that `python -m module` runs."""
    try:
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{module}.__main__")
    except ModuleNotFoundError:
        return None
    return spec.origin if spec is not None else None


def _submit_faults(arguments: Sequence[str], is_whole: bool) -> list[str]:
    at = next((i for i, word in enumerate(arguments) if word.endswith(".py")), None)
    if at is None or not (ROOT / arguments[at]).is_file():
        return [f"spark-submit {shlex.join(arguments)}: no such script"]
    module = ".".join(("stratalog", *Path(arguments[at]).with_suffix("").parts))
    return _flag_faults(module, arguments[at + 1 :], is_whole)


def _flags(arguments: Sequence[str]) -> list[str]:
    return [word.partition("=")[0] for word in arguments if word.startswith("--")]


def _flag_faults(module: str, arguments: Sequence[str], is_whole: bool) -> list[str]:
    if _spec_origin(module) is None:
        return [f"{module}: no such module"]
    runnable = module if find_spec(module).submodule_search_locations is None else f"{module}.__main__"  # type: ignore[union-attr]
    command = import_module(runnable).main
    known = set(re.findall(r"--[\w.-]*\w", command.help()))
    unknown = [f"{module}: no flag {flag}" for flag in _flags(arguments) if flag not in known]
    if unknown or not is_whole or _PLACEHOLDER in arguments:
        return unknown
    try:
        command.checked(arguments)
    except SystemExit as end:  # --help and --version
        return [] if not end.code else [f"{module} {shlex.join(arguments)}: exit code {end.code}"]
    except Exception as reason:  # noqa: BLE001  # any error of the tool about its command line
        return [f"{module} {shlex.join(arguments)}: {reason}"]
    return []
