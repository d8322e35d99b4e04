"""Layers: a package imports only from those before it, and heavy libraries only where they belong."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "groundmetric"
LAYERS = [
    "_internal", "distributions", "metrics", "modalities", "transport", "distances",
    "learning", "ensemble", "estimators", "baselines", "evaluation", "interpret", "neural", "_anndata",
    "get", "pp", "tl", "integrations", "pl", "datasets", "report", "cli",
]  # fmt: skip
# Second names of a module that is public at the top: they belong to no layer.
ALIASES = {"__init__", "__main__"}
CORE = {"numpy", "scipy", "sklearn", "joblib", "tqdm"}
# Layers that speak of AnnData: whoever imports them has its libraries.
CELLS = {"_anndata", "get", "pp", "tl", "integrations", "report"}
# Libraries of the extras and the layers that import them with the module itself.
EAGER = {
    "matplotlib": {"pl", "report", "cli"}, "torch": {"neural"}, "jinja2": {"report"}, "markupsafe": {"report"},
    "anndata": CELLS, "scanpy": CELLS, "pandas": CELLS, "h5py": CELLS, "zarr": CELLS,
    "patpy": {"integrations"}, "pertpy": {"integrations"},
}  # fmt: skip
# Layers that import them inside the functions that need them. No other layer imports them.
LAZY = {
    "dask": {"_internal"}, "distributed": {"_internal"},
    "anndata": {"pl", "datasets", "cli"}, "scanpy": {"pl", "datasets", "cli"}, "h5py": {"datasets", "cli"},
    "pandas": {"ensemble", "evaluation", "interpret", "pl", "datasets", "cli"}, "pooch": {"datasets"},
    "mudata": {"_anndata"}, "gprofiler": {"interpret"}, "requests": {"interpret", "datasets"},
}  # fmt: skip


def imports(path: Path) -> Iterator[tuple[str, bool, int]]:
    """Every import of a file: the dotted name, whether it runs when the file is imported, and its line.

    Names of the package itself start with `groundmetric.`, also where the import is relative.
    """
    tree = ast.parse(path.read_text())
    package = ("groundmetric", *path.relative_to(SOURCE).parts[:-1])
    later = {id(node) for f in ast.walk(tree) if isinstance(f, _LATER) for node in ast.walk(f)}
    typing = {id(node) for branch in ast.walk(tree) if _for_type_checkers(branch) for node in ast.walk(branch)}
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (*package[: len(package) + 1 - node.level],) if node.level else ()
            names = [".".join((*base, *filter(None, [node.module]), alias.name)) for alias in node.names]
        else:
            continue
        yield from ((name, id(node) not in later, node.lineno) for name in names)


_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def faults(path: Path) -> Iterator[str]:
    """Yield a line for each forbidden import of a file."""
    layer = path.relative_to(SOURCE).with_suffix("").parts[0]
    if layer in ALIASES:
        return
    where = path.relative_to(SOURCE.parent)
    if layer not in LAYERS:
        yield f"{where}: {layer!r} is not a layer; add it to LAYERS"
        return
    for name, at_once, line in imports(path):
        first, *remaining = name.split(".")
        target = remaining[0] if remaining else ""
        if first == "groundmetric":
            # Inside a function, an import may point anywhere but must be of the package.
            if at_once and target in LAYERS and LAYERS.index(target) > LAYERS.index(layer):
                yield f"{where}:{line} imports {name}, which is in a later layer"
        elif first in ("paper", "tests", "benchmarks"):
            yield f"{where}:{line} imports {name}, which is not in the wheel"
        elif first in EAGER or first in LAZY:
            allowed = EAGER.get(first, set()) | LAZY.get(first, set())
            if layer not in allowed:
                yield f"{where}:{line} imports {first}, which belongs in {', '.join(sorted(allowed))}"
            elif at_once and layer not in EAGER.get(first, ()):
                yield f"{where}:{line} imports {first} at once: import it inside the function that uses it"
        elif first not in CORE and first not in sys.stdlib_module_names:
            yield f"{where}:{line} imports {first}, which is not a dependency: add it to LAZY and to pyproject.toml"


def test_imports_point_to_earlier_layers_and_heavy_libraries_stay_where_they_belong():
    result = [fault for path in sorted(SOURCE.rglob("*.py")) for fault in faults(path)]
    assert not result, "\n" + "\n".join(result)
