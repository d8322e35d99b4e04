"""A run with hostile names, and its report."""

import html
import re
import warnings

import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._internal.tables import visible
from groundmetric.report.page import render


def pytest_collection_modifyitems(items):
    """Ignore warnings of the design: cohorts of these tests are small, and a report groups some by patient."""
    for item in items:
        if item.path.parent.name == "report":
            item.add_marker(pytest.mark.filterwarnings("ignore::groundmetric.tl.CohortWarning"))


SCRIPT = "<script>window.broken = 1</script>"
GIVEN = [
    f"S1 {SCRIPT}",
    'S2 "quoted"',
    "S3 'single' & more",
    "S4 </script><img src=x onerror=alert(1)>",
    "S5 🧬",
    "S6 \u202ebob\u200b",
]
NAMES = [visible(name) for name in GIVEN]  # as a page shows them


def hostile_cohort():
    """Return six samples whose names, labels, genes and columns contain markup and invisible characters."""
    cohort = gm.datasets.make_cohort(
        3, 30, 60, cell_types=["A", "B"], n_markers=5, n_programme_genes=10, programme_strength=3.0, random_state=0
    )
    del cohort.uns["truth"]
    obs = cohort.obs
    obs["sample"] = obs["sample"].cat.rename_categories(GIVEN)
    obs["condition"] = obs["condition"].cat.rename_categories(["<b>well</b>", 'ill "é" 🤒'])
    obs["cell_type"] = obs["cell_type"].cat.rename_categories(["A<i>", "B"])
    obs["<u>batch"] = obs["condition"].astype(str)
    cohort.var_names = [f"{name}{SCRIPT}" if name == "PROG01" else f"{name}'\"&" for name in cohort.var_names]
    return cohort


def cards_of(page):
    """Value and lines of the cards of a page, by title."""
    cards = {}
    for content in re.findall(r'<a class="card.*?</a>', render(page), re.DOTALL):
        title, value, *lines = map(html.unescape, re.findall("<span[^>]*>(.*?)</span>", content))
        cards[title] = value, lines
    return cards


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    hostile_cohort().write_h5ad(folder / "cells.h5ad")
    command = [
        "learn",
        str(folder / "cells.h5ad"),
        "--sample",
        "sample",
        "--label",
        "condition",
        "--epochs",
        "5",
        "--genes",
        "all",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.tl.CohortWarning)  # a small cohort with a confounded batch
        assert cli.main([*command, "-o", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def written(run_folder):
    """The path of a report with everything, and the result of `write`."""
    sets = run_folder.parent / "sets.gmt"
    metric = gm.get.metric(run_folder / "cells.h5ad")
    genes = "\t".join(metric.features[k] for k in (-metric.importance()).argsort()[:9])
    sets.write_text(f"PROGRAMME <b>SET</b>\tnone\t{genes}\n")
    page = run_folder.parent / "page.html"
    return page, gm.report.write(run_folder, page, gene_sets=sets, permutations=3)
