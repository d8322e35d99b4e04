"""Who may import whom: data flows one way, and heavy packages stay in the modules that are for them."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "groundmetric"

# Top first. A module imports from its own line or from lines above it, never from below.
LAYERS = [
    "arrays extras parallel safe_files safe_folders array_files",
    "cluster.errands cluster.jobs cluster.dask_place cluster.choosing cluster",
    "distributions",
    "triplets.indices triplets.targets point_distances datasets.synthetic datasets.download datasets.cohort_model",
    "triplets.choosing",
    "triplets",
    "datasets.cohort datasets.portal",
    "datasets",
    "metric diagonal_metric mapped_metric metric_files",
    "fingerprints",
    "transport.stale transport.compiling transport.plan transport.masses transport.costs transport.line transport.scan",
    "transport.tree transport.prices",
    "transport.simplex transport.forests",
    "transport.pair_kernels transport.checks transport.solver transport.grouping",
    "transport.exact transport.sinkhorn",
    "transport.partial transport.unbalanced transport.entropic transport.sliced transport.coarse",
    "transport.gaussian",
    "transport.choice",
    "transport.door",
    "transport.halving transport.refining transport.candidates transport.sparse_simplex",
    "transport.descent",
    "transport.large",
    "transport.points transport.clouds",
    "transport.large_pairs",
    "transport.basis_messages transport.batches transport.elsewhere transport.comparing_elsewhere",
    "transport.coarsening transport.details",
    "transport.pairs",
    "transport.bounds",
    "transport.search",
    "transport",
    "learning.penalties learning.start learning.embedding learning.mining learning.nuisance",
    "learning.optimiser learning.ground",
    "learning.models learning.objective",
    "learning.batches learning.run_states learning.checkpoints learning.renewal learning.vanishing",
    "learning.training",
    "learning",
    "kept_distances",
    "distances",
    "estimators.checks estimators.preparation estimators.method estimators.votes estimators.cautions",
    "estimators.labels estimators.settings estimators.checkpointing estimators.restarts estimators.neighbours",
    "estimators.learner estimators.classifier estimators.regressor",
    "estimators",
    "neural.modules neural.metric",
    "neural.embedding neural.distance",
    "neural.learner",
    "neural",
    "baselines.training baselines.scatter baselines.space",
    "baselines.plain baselines.learned",
    "baselines.nca baselines.lmnn baselines.lfda baselines.itml",
    "baselines.projections baselines.pseudobulk baselines.composition",
    "baselines",
    "evaluation.feasibility evaluation.scores evaluation.intervals evaluation.clustering",
    "evaluation.splits evaluation.votes evaluation.exchange evaluation.averaging evaluation.neighbourhoods",
    "evaluation.running evaluation.spaces",
    "evaluation.trying",
    "evaluation.shrinking",
    "evaluation.search",
    "evaluation.limits evaluation.pooling evaluation.resuming",
    "evaluation.workers evaluation.procedure evaluation.results evaluation.tables",
    "evaluation.comparison evaluation.permutation",
    "evaluation",
    "interpret.frames interpret.inputs interpret.shipments interpret.gene_sets interpret.discovery",
    "interpret.axes interpret.features interpret.pairs interpret.relevance interpret.flows",
    "interpret.enrichment interpret.refits",
    "interpret.gprofiler interpret.stability",
    "interpret",
    "pl.style pl.geometry",
    "pl.classes",
    "pl.tables pl.legends",
    "pl.bars pl.clouds pl.component_maps pl.curves pl.ellipses pl.flows pl.heatmaps pl.intervals pl.maps pl.samples",
    "pl.scores",
    "pl",
    "cells.columns cells.matrix",
    "cells cells.source",
    "cells.genes",
    "pp",
    "tl.stored tl.graph tl.trajectory tl.fitting",
    "tl.learning tl.samples tl.averaging tl.held_out",
    "tl.transfer tl.relevance",
    "tl",
    "reproduce.paper reproduce.prepared reproduce.keeping reproduce.tables reproduce.cohorts",
    "reproduce.selected reproduce.components",
    "reproduce.protocol",
    "reproduce.fitted_once",
    "reproduce.figures reproduce.classification reproduce.clustering reproduce.surface reproduce.timing reproduce.real",
    "reproduce.evaluating reproduce.pages.classification reproduce.pages.clustering reproduce.pages.ablations",
    "reproduce.pages.pictures reproduce.pages.real",
    "reproduce.pages",
    "reproduce.running",
    "reproduce",
    "report.run report.content",
    "report.compute report.summary",
    "report.collect",
    "report.write",
    "report",
    "demo.studies",
    "demo",
    "cli.output cli.options",
    "cli.demo cli.evaluate cli.learn cli.predict cli.report cli.reproduce",
    "cli.program",
    "cli cli.__main__",
    "__main__",
]
PLACE = {module: place for place, line in enumerate(LAYERS) for module in line.split()}

# Heavy packages, and the modules (or all of a package's) that may import them.
HEAVY = {
    "matplotlib": {"reproduce", "pl", "demo", "report"},
    "torch": {"neural"},
    "pandas": {"reproduce", "report", "datasets.cohort", "interpret", "cells", "tl", "cli.learn", "cli.predict"},
    "scanpy": {"cells.genes", "pp"},
    "anndata": {
        "reproduce",
        "report",
        "datasets.cohort",
        "datasets.portal",
        "cells",
        "tl",
        "cli.learn",
        "cli.predict",
    },
    "plotly": set(),
    "jinja2": {"report"},
    "dask": {"cluster"},
    "distributed": {"cluster"},
}


def module_name(path):
    """transport/pairs.py is transport.pairs, transport/__init__.py is transport; the package itself is ''."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported_names(tree, module, is_package):
    """Full dotted names of everything a module imports, wherever in the file."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["groundmetric", *filter(None, package)]
                base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports(module):
    path = MODULES[module]
    return set(imported_names(ast.parse(path.read_text()), module, path.name == "__init__.py"))


def own_modules(names):
    """The modules of this package among imported names; `transport.solve` means the module `transport`."""
    for name in names:
        if name.split(".")[0] == "groundmetric":
            inside = name.removeprefix("groundmetric").removeprefix(".")
            yield inside if inside in MODULES else inside.rpartition(".")[0]


def upward_imports(module):
    return {other for other in own_modules(imports(module)) if other and PLACE[other] > PLACE[module]}


def test_every_module_has_a_place_in_the_layers():
    assert set(MODULES) - {""} == set(PLACE)


@pytest.mark.parametrize("module", sorted(set(MODULES) & set(PLACE)))
def test_no_import_points_to_a_lower_layer(module):
    assert not upward_imports(module), f"{module} imports from below itself"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_heavy_packages_stay_in_their_modules(module):
    heavy = {name.split(".")[0] for name in imports(module)} & set(HEAVY)
    assert not {package for package in heavy if not {module, module.split(".")[0]} & HEAVY[package]}


def test_the_package_itself_imports_only_its_own_modules_and_the_standard_library():
    assert {name.split(".")[0] for name in imports("")} <= {"__future__", "importlib", "typing", "groundmetric"}


def test_the_check_sees_imports_of_every_form():
    source = "import torch.nn\nfrom ..metric import GroundMetric\nfrom . import costs\ndef f():\n    from .. import pl"
    found = set(imported_names(ast.parse(source), "transport.pairs", is_package=False))
    assert found == {"torch.nn", "groundmetric.metric.GroundMetric", "groundmetric.transport.costs", "groundmetric.pl"}
