"""Layers: each package imports only from those before it."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "groundmetric"
LAYERS = [
    "_internal", "distributions", "metrics", "distributed", "transport", "distances", "supervision", "learning",
    "estimators", "baselines", "evaluation", "interpret", "neural", "_anndata", "pp", "get", "tl", "pl", "datasets",
    "report", "cli",
]  # fmt: skip


def upward_imports():
    """Imports that point down the list, as readable lines."""
    for path in sorted(SOURCE.rglob("*.py")):
        here = path.relative_to(SOURCE).with_suffix("").parts
        if here[0] in ("__init__", "__main__"):
            continue
        for node in ast.parse(path.read_text()).body:  # what is only for type checkers may point anywhere
            if isinstance(node, ast.ImportFrom) and node.level:
                base = here[: len(here) - node.level]
                names = [(*base, *(node.module or "").split("."), alias.name) for alias in node.names]
                for name in names:
                    room = next(part for part in name if part)
                    if room in LAYERS and LAYERS.index(room) > LAYERS.index(here[0]):
                        yield f"{'/'.join(here)} imports {'.'.join(filter(None, name))}"


def test_no_package_imports_from_a_later_one():
    assert not list(upward_imports())
