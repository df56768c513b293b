"""Notebooks are short, whole, and name only what exists; so do their pages and the bundle for Databricks. No Spark."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIRST_COMPILER_ONLY
from tests.docs.commands import faults

ROOT = Path(__file__).resolve().parents[2]
CELLS_MAX = 12
PICTURE_BYTES_MAX = 80_000


def loaded(name: str) -> Any:
    """A module of notebooks/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"notebooks_{name}", ROOT / "notebooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RENDER = loaded("render")
NOTEBOOKS: list[Path] = RENDER.notebooks()
by_name = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook: Path) -> Any:
    return RENDER.cells_of(notebook.read_text(encoding="utf-8"))


def rendered() -> list[Path]:
    """The notebooks whose pages the README names."""
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    return [path for path in NOTEBOOKS if f"](../docs/notebooks/{path.stem}.md)" in text]


def test_there_are_ten_with_a_page_each() -> None:
    assert len(NOTEBOOKS) == 10
    assert rendered() == NOTEBOOKS


@by_name
def test_a_notebook_is_one_story_of_few_cells(notebook: Path) -> None:
    found = cells(notebook)
    assert len(found) <= CELLS_MAX
    assert found[0].kind == "md"
    assert found[0].text.startswith("# ")
    assert any("plt.subplots" in cell.text for cell in found)
    assert any("widget(" in cell.text for cell in found)


@by_name
def test_what_a_notebook_imports_is_there(notebook: Path) -> None:
    for node in ast.walk(ast.parse(notebook.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@by_name
def test_a_notebook_comes_in_through_the_front_door(notebook: Path) -> None:
    tree = ast.parse(notebook.read_text(encoding="utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [each for each in imported if each.startswith("stratalog.")] == []


@pytest.mark.parametrize("notebook", rendered(), ids=lambda path: path.stem)
def test_a_notebook_has_a_page_of_its_cells_with_small_pictures(notebook: Path) -> None:
    page = (RENDER.PAGES / f"{notebook.stem}.md").read_text(encoding="utf-8")
    assert page.startswith(f"{RENDER.origin_of(notebook)}\n")
    assert [cell.text for cell in cells(notebook) if cell.kind == "md" and cell.text not in page] == []
    named = re.findall(r"\*Lines (\d+)-(\d+)\*$", page, re.MULTILINE)
    code = [cell for cell in cells(notebook) if cell.kind == "python"]
    assert named == [(str(cell.first_line), str(cell.last_line)) for cell in code]
    source = notebook.read_text(encoding="utf-8").splitlines()
    assert ["\n".join(source[cell.first_line - 1 : cell.last_line]) for cell in code] == [cell.text for cell in code]
    pictures = [RENDER.PAGES / name for name in re.findall(r"\]\(([\w-]+\.png)\)", page)]
    assert pictures
    assert [path.name for path in pictures if not 0 < path.stat().st_size <= PICTURE_BYTES_MAX] == []


def test_the_readme_names_each_notebook_and_its_page() -> None:
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not (ROOT / "notebooks" / link).exists()] == []
    assert {path.name for path in NOTEBOOKS} <= set(links)


def test_cells_are_of_python_markdown_or_another_magic() -> None:
    texts = ["# MAGIC %md\n# MAGIC # A\n", "x = 1\n", "# MAGIC %pip install y\n"]
    source = f"{RENDER.SOURCE}\n" + f"\n{RENDER.CELL}\n".join(texts)
    assert [(cell.kind, cell.text) for cell in RENDER.cells_of(source)] == [
        ("md", "# A"),
        ("python", "x = 1"),
        ("pip", "%pip install y"),
    ]
    with pytest.raises(ValueError, match="a notebook begins with"):
        RENDER.cells_of("x = 1")


def test_a_cells_last_expression_and_its_figures_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RENDER, "PAGES", tmp_path)
    notebook = tmp_path / "00_x.py"
    figure = "# A figure.\nimport matplotlib.pyplot as plt\nprint('before')\nplt.subplots(figsize=(1, 1))[0]"
    notebook.write_text(
        f"{RENDER.SOURCE}\n{RENDER.MAGIC} %md\n{RENDER.MAGIC} # X\n{RENDER.CELL}\n1 + 1\n{RENDER.CELL}\n{figure}\n"
    )
    RENDER.run(notebook)
    page = (tmp_path / "00_x.md").read_text()
    assert "*Lines 5-5*\n\n```text\n2\n```" in page
    assert "\nA figure. *Lines 7-10*\n" in page
    assert page.index("before") < page.index("![picture 1 of 00_x](00_x-1.png)")
    assert (tmp_path / "00_x-1.png").read_bytes().startswith(b"\x89PNG")


def test_the_bundles_paths_and_entry_points_are_there() -> None:
    text = (ROOT / "databricks.yml").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"package_name: (\S+)", text)) == {project["name"]}
    entries = re.findall(r"entry_point: (\S+)", text)
    assert entries
    assert [each for each in entries if each not in project["scripts"]] == []
    tools = set[str]()
    for entry, block in re.findall(r"entry_point: (\S+)\n +parameters:\n((?: {14}- .*\n)+)", text):
        arguments = [line.strip().removeprefix("- ") for line in block.splitlines()]
        assert faults([entry, *arguments]) == []
        tools.add(arguments[0])
    assert tools == {"broker", "typed-table"}
    paths = re.findall(r"notebook_path: (\S+)", text)
    assert paths
    assert [each for each in paths if not (ROOT / each).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [target] = re.findall(r"build: make (\S+)", text)
    assert f"\n{target}:" in makefile
    assert "--wheel-dir dist" in makefile
    assert set(re.findall(r"whl: (\S+)", text)) == {"dist/*.whl"}
    widgets = {name for path in paths for name in re.findall(r'widget\("(\w+)"', (ROOT / path).read_text())}
    given = re.findall(r"base_parameters:\n((?: {14}\S.*\n)+)", text)
    assert {line.split(":")[0].strip() for block in given for line in block.splitlines()} <= widgets


@pytest.mark.long
@pytest.mark.timeout(600)
@by_name
def test_a_notebook_runs_as_a_script_and_leaves_nothing(notebook: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "MPLBACKEND": "Agg"}
    environment["JDK_JAVA_OPTIONS"] = FIRST_COMPILER_ONLY
    done = subprocess.run(
        [sys.executable, str(notebook)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert [line for line in done.stderr.splitlines() if "Traceback" in line or "ERROR" in line] == []
    assert [path.name for path in tmp_path.glob("stratalog-*") if path.is_dir() and "-" in path.name[10:]] == []
