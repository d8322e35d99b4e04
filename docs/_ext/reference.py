"""API reference: an index by task, a page for each public module, and a page for each public name.

Names come from `__all__` of the package and of its public modules. A name that several modules export has its page
where the package exports it. The pages are written before Sphinx reads the sources.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import types
from pathlib import Path
from typing import Any

import groundmetric

# Modules that need torch, patpy and pertpy.
UNIMPORTED = ("groundmetric.neural", "groundmetric.integrations.patpy", "groundmetric.integrations.pertpy")

# Sections of the index: names of the package, or modules with all their names. Other names are listed at the end.
TASKS = {
    "Represent data": ["Distributions", "Modalities", "groundmetric.datasets"],
    "Learn a metric": [
        "GroundMetricEnsemble",
        "GroundMetricLearner",
        "GroundMetric",
        "PointwiseTransformer",
        "groundmetric.metrics",
        "groundmetric.learning",
    ],
    "Predict labels": [
        "TransportClassifier",
        "TransportRegressor",
        "TransportSurvival",
        "MultimodalClassifier",
        "MultimodalRegressor",
        "TransportKNeighborsClassifier",
        "TransportKNeighborsRegressor",
    ],
    "Compute distances and transport plans": [
        "pairwise_distances",
        "kneighbors",
        "groundmetric.transport",
    ],
    "Evaluate and test": ["groundmetric.evaluation", "groundmetric.baselines"],
    "Interpret": ["groundmetric.interpret"],
    "Work with AnnData": ["groundmetric.pp", "groundmetric.tl", "groundmetric.get"],
    "Plot": ["groundmetric.pl"],
    "Write reports": ["groundmetric.report"],
    "Use neural networks (extra)": ["groundmetric.neural"],
    "Use patpy and pertpy (extras)": ["groundmetric.integrations.patpy", "groundmetric.integrations.pertpy"],
}


def public_names() -> dict[str, list[str]]:
    """Return the public names of each public module, each name once.

    Modules in `UNIMPORTED` are parsed instead of imported, because their dependencies may be missing.
    """
    exported = {name: getattr(groundmetric, name) for name in groundmetric.__all__}
    modules = [groundmetric, *(value for value in exported.values() if inspect.ismodule(value))]
    seen: set[int] = set()
    names_by_module: dict[str, list[str]] = {}
    for module in modules:
        names_by_module[module.__name__] = []
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value) or name.startswith("__") or id(value) in seen:
                continue
            seen.add(id(value))
            names_by_module[module.__name__].append(name)
    return names_by_module | {module: exported_by(module) for module in UNIMPORTED}


def exported_by(module: str) -> list[str]:
    """Return `__all__` of a module from its source."""
    for node in source_of(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"{module} has no __all__")


def source_of(module: str) -> ast.Module:
    return ast.parse(Path(importlib.util.find_spec(module).origin).read_text())


def first_line(module: str) -> str:
    return (ast.get_docstring(source_of(module)) or "").split("\n", 1)[0]


def write(folder: Path) -> None:
    """Write the index and the pages of modules (autosummary writes those of names); remove pages of removed names."""
    folder.mkdir(parents=True, exist_ok=True)
    names_by_module = public_names()
    pages = {f"{module}.rst": _module_page(module, names) for module, names in names_by_module.items()}
    pages["index.rst"] = _index_page(names_by_module)
    written_by_autosummary = {f"{module}.{name}.rst" for module, names in names_by_module.items() for name in names}
    for path in folder.glob("*.rst"):
        if path.name not in pages and path.name not in written_by_autosummary:
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


def _index_page(names_by_module: dict[str, list[str]]) -> str:
    package = {name: f"groundmetric.{name}" for name in names_by_module["groundmetric"]}
    full_names = {module: [f"{module}.{name}" for name in names] for module, names in names_by_module.items()}
    sections, listed = [], set()
    for task, entries in TASKS.items():
        names = [
            name for entry in entries for name in full_names.get(entry, [package[entry]] if entry in package else [])
        ]
        sections.append(_section(task, names))
        listed |= set(names)
    remaining = [name for names in full_names.values() for name in names if name not in listed]
    sections += [_section("Further names", remaining)] if remaining else []
    tree = "\n".join(f"   {name}" for name in names_by_module)
    intro = "Public names by task. :doc:`/choosing` shows which of them to use."
    return f"{_title('API reference')}{intro}\n\n{''.join(sections)}.. toctree::\n   :hidden:\n\n{tree}\n"


def _section(title: str, names: list[str]) -> str:
    entries = "\n".join(f"   ~{name}" for name in names)
    return f"{title}\n{'-' * len(title)}\n\n.. autosummary::\n   :nosignatures:\n\n{entries}\n\n"


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"


def _replace(path: Path, text: str) -> None:
    """Write a page only if it has changed, because Sphinx reads modified pages again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def plain_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape vertical bars in docstrings: |x| is an absolute value, not a substitution of reStructuredText."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            lines[number] = line.replace("|", "\\|")


def skip_others(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip methods inherited from other packages, whose docstrings contain links to their own sites."""
    owner = getattr(obj, "__module__", None) or ""
    is_builtin = isinstance(obj, types.BuiltinMethodType | types.MethodDescriptorType)  # methods of int in enums
    return True if is_builtin or owner.split(".")[0] in ("sklearn", "patpy", "pertpy") else None


def setup(app: Any) -> dict:
    # This event comes before Sphinx collects the source files.
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "generated" / "api"))
    app.connect("autodoc-process-docstring", plain_bars, priority=900)
    app.connect("autodoc-skip-member", skip_others)
    return {"version": "1", "parallel_read_safe": True}
