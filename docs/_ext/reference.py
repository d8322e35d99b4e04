"""API reference: a page for each public module, and one for each public name, written before Sphinx reads pages.

Names come from `__all__` of the package and of its public modules, so that no list is kept by hand. A name that several
modules export has its page where the package exports it.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import groundmetric


def public_modules() -> list[ModuleType]:
    """The package, then its public modules in the order of `__all__`."""
    exported = [getattr(groundmetric, name) for name in groundmetric.__all__]
    return [groundmetric, *(value for value in exported if inspect.ismodule(value))]


def public_names() -> dict[str, list[str]]:
    """Public names of each module; classes and functions that a module before it has are left out."""
    seen: set[int] = set()
    found: dict[str, list[str]] = {}
    for module in public_modules():
        found[module.__name__] = []
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or name.startswith("__") or id(value) in seen:
                continue
            seen.add(id(value))
            found[module.__name__].append(name)
    return found


def first_line(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").split("\n", 1)[0]


def write(folder: Path) -> None:
    """Write the pages of the modules; autosummary writes those of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    found = public_names()
    for module, names in found.items():
        _replace(folder / f"{module}.rst", _module_page(module, names))
    _replace(folder / "index.rst", _index_page(list(found)))


def _module_page(module: str, names: list[str]) -> str:
    summary = first_line(importlib.import_module(module))
    entries = "\n".join(f"   {name}" for name in names)
    return (
        f"{_title(module)}\n.. module:: {module}\n   :noindex:\n\n{summary}\n\n.. currentmodule:: {module}\n\n"
        f".. autosummary::\n   :toctree: .\n   :nosignatures:\n\n{entries}\n"
    )


def _index_page(modules: list[str]) -> str:
    rows = "\n".join(f"   * - :doc:`{name}`\n     - {first_line(importlib.import_module(name))}" for name in modules)
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


def skip_sklearn(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out methods that scikit-learn brings: their docstrings link to its site."""
    owner = getattr(obj, "__module__", None) or ""
    return True if owner.startswith("sklearn") else None


def setup(app: Any) -> dict:
    # Before Sphinx looks for pages.
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "generated" / "api"))
    app.connect("autodoc-process-docstring", plain_bars, priority=900)
    app.connect("autodoc-skip-member", skip_sklearn)
    return {"version": "1", "parallel_read_safe": True}
