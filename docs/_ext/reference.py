"""API reference: a page for each public module, and one for each public name, written before Sphinx reads pages.

Names come from `__all__` of the package and of its public modules, so that no list is kept by hand. A name that several
modules export has its page where the package exports it.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import groundmetric

# Modules that need torch, patpy and pertpy.
UNIMPORTED = ("groundmetric.neural", "groundmetric.integrations.patpy", "groundmetric.integrations.pertpy")


def public_names() -> dict[str, list[str]]:
    """Public names of each public module; classes and functions that a module before it has are left out.

    Those in `UNIMPORTED` are read, not imported, because what they need may not be installed.
    """
    exported = {name: getattr(groundmetric, name) for name in groundmetric.__all__}
    modules = [groundmetric, *(value for value in exported.values() if inspect.ismodule(value))]
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for module in modules:
        found[module.__name__] = []
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or name.startswith("__") or id(value) in seen:
                continue
            seen.add(id(value))
            found[module.__name__].append(name)
    return found | {module: exported_by(module) for module in UNIMPORTED}


def exported_by(module: str) -> list[str]:
    """`__all__` of a module, from its source."""
    for node in source_of(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"{module} has no __all__: say there which of its names are public")


def source_of(module: str) -> ast.Module:
    return ast.parse(Path(importlib.util.find_spec(module).origin).read_text())


def first_line(module: str) -> str:
    return (ast.get_docstring(source_of(module)) or "").split("\n", 1)[0]


def write(folder: Path) -> None:
    """Write the pages of modules, for autosummary to write those of names; remove pages of names that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    found = public_names()
    pages = {f"{module}.rst": _module_page(module, names) for module, names in found.items()}
    pages["index.rst"] = _index_page(list(found))
    kept = {f"{module}.{name}.rst" for module, names in found.items() for name in names}
    for path in folder.glob("*.rst"):
        if path.name not in pages and path.name not in kept:
            path.unlink()
    for name, text in pages.items():
        _replace(folder / name, text)


def _module_page(module: str, names: list[str]) -> str:
    summary = first_line(module)
    entries = "\n".join(f"   {name}" for name in names)
    return (
        f"{_title(module)}\n.. module:: {module}\n   :noindex:\n\n{summary}\n\n.. currentmodule:: {module}\n\n"
        f".. autosummary::\n   :toctree: .\n   :nosignatures:\n\n{entries}\n"
    )


def _index_page(modules: list[str]) -> str:
    rows = "\n".join(f"   * - :doc:`{name}`\n     - {first_line(name)}" for name in modules)
    tree = "\n".join(f"   {name}" for name in modules)
    return (
        f"{_title('API reference')}\nEvery public name, by the module to import it from.\n\n"
        f".. list-table::\n   :widths: 30 70\n\n{rows}\n\n.. toctree::\n   :hidden:\n\n{tree}\n"
    )


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def _replace(path: Path, text: str) -> None:
    """Write a page only where it differs, so that Sphinx does not read it again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def plain_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what reStructuredText would take for markup: |x| in docstrings is an absolute value."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            lines[place] = line.replace("|", "\\|")


def skip_others(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out methods of base classes from other packages: their docstrings link to their sites."""
    owner = getattr(obj, "__module__", None) or ""
    return True if owner.split(".")[0] in ("sklearn", "patpy", "pertpy") else None


def setup(app: Any) -> dict:
    # Before Sphinx looks for pages.
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "generated" / "api"))
    app.connect("autodoc-process-docstring", plain_bars, priority=900)
    app.connect("autodoc-skip-member", skip_others)
    return {"version": "1", "parallel_read_safe": True}
