"""Programs in JavaScript: packages that npm installs once, and a process of Node.js whose objects are called.

I/O: npm, a folder of the virtual environment, node in processes of its own.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent
FOLDER = Path(sys.prefix) / "node-clients"
"""Packages, and copies of the programs beside them: Node.js looks for packages above the program's own folder."""
PACKAGES = ("package.json", "package-lock.json", ".npmrc")
NODE = FOLDER / "node_modules" / "node" / "bin" / "node"
CALL_S_MAX = 70


class NodeError(Exception):
    """An error of a client in JavaScript: its name, its message, and those of the errors inside it."""


class Big(int):
    """An argument that is a BigInt in JavaScript."""


@cache
def installed() -> Path:
    """The folder with the packages of package-lock.json, and with the programs."""
    lock = (SOURCES / "package-lock.json").read_text()
    done = FOLDER / "installed.json"
    if not done.exists() or done.read_text() != lock:
        FOLDER.mkdir(exist_ok=True)
        for name in PACKAGES:
            shutil.copyfile(SOURCES / name, FOLDER / name)
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=FOLDER, check=True)
        done.write_text(lock)
    for program in SOURCES.glob("*.mjs"):
        shutil.copyfile(program, FOLDER / program.name)
    return FOLDER


def version_of(package: str) -> str:
    """The version of an installed package."""
    return json.loads((installed() / "node_modules" / package / "package.json").read_text())["version"]


class NodeProcess:
    """A process that runs one of the programs. Its objects are called from several threads, side by side."""

    def __init__(self, program: str) -> None:
        command = [str(NODE), str(installed() / "host.mjs"), program]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        threading.Thread(target=self._receive, name=program, daemon=True).start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def open(self, kind: str, settings: dict[str, Any]) -> NodeObject:
        """A new object of one of the program's classes."""
        made = NodeObject(self, next(self._numbers))
        self.call(made.number, "open", kind, settings)
        return made

    def call(self, number: int, method: str, *args: Any) -> Any:
        """What a method returns. NodeError for what it throws, TimeoutError after `CALL_S_MAX`."""
        answer: Future[Any] = Future()
        with self._lock:
            call_id = next(self._numbers)
            self._calls[call_id] = answer
            call = {"id": call_id, "object": number, "method": method, "args": to_wire(args)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(call) + "\n")
            self._process.stdin.flush()
        try:
            return answer.result(CALL_S_MAX)
        except TimeoutError:
            raise TimeoutError(f"{method}: no answer after {CALL_S_MAX} s") from None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _receive(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            call = self._calls.pop(answer["id"])
            if "error" in answer:
                call.set_exception(NodeError(answer["error"]))
            else:
                call.set_result(from_wire(answer.get("value")))
        for call in self._calls.values():
            call.set_exception(NodeError("the process of Node.js ended"))


class NodeObject:
    """An object in a process of Node.js."""

    def __init__(self, process: NodeProcess, number: int) -> None:
        self._process = process
        self.number = number

    def call(self, method: str, *args: Any) -> Any:
        return self._process.call(self.number, method, *args)


def to_wire(value: Any) -> Any:
    """Bytes, big integers and objects of a process as the program's host reads them."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Big):
        return {"big": str(value)}
    if isinstance(value, NodeObject):
        return {"object": value.number}
    if isinstance(value, dict):
        return {name: to_wire(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(each) for each in value]
    return value


def from_wire(value: Any) -> Any:
    if isinstance(value, list):
        return [from_wire(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"bytes"}:
        return base64.b64decode(value["bytes"])
    if value.keys() == {"big"}:
        return int(value["big"])
    return {name: from_wire(each) for name, each in value.items()}
