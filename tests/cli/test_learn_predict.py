"""`groundmetric learn` and `predict`: from files to files, with errors that help."""

import csv
import json
import pickle
import shutil

import anndata as ad
import numpy as np
import pytest

import groundmetric as gm
from groundmetric import cli
from groundmetric._internal.validation import ParameterError

LEARN = ["--sample", "sample", "--label", "condition", "--cells-per-sample", "30", "--epochs", "10"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of training and of new cells, and the folder of a run."""
    folder = tmp_path_factory.mktemp("cli")
    cohort = gm.datasets.make_cohort(
        4, 40, 120, cell_types=["A", "B"], n_markers=5, n_programme_genes=10, programme_strength=3.0,
        batch_strength=0.0, random_state=0,
    )  # fmt: skip
    del cohort.uns["truth"]
    new = cohort.obs["sample"].isin(["S04", "S08"])
    cohort[~new].write_h5ad(folder / "cells.h5ad")
    cohort[new].write_h5ad(folder / "new.h5ad")
    assert cli.main(["learn", str(folder / "cells.h5ad"), *LEARN, "-o", str(folder / "run")]) == 0
    return folder


def test_a_run_holds_the_results_of_the_package(files):
    run = files / "run"
    expected = gm.tl.learn(files / "cells.h5ad", "sample", "condition", n_cells=30, max_epochs=10)
    metric = gm.GroundMetric.load(run / "metric.gm")
    np.testing.assert_array_equal(metric.components, gm.get.metric(expected).components)
    cells, samples = ad.read_h5ad(run / "cells.h5ad"), ad.read_h5ad(run / "samples.h5ad")
    np.testing.assert_array_equal(cells.obsm["X_groundmetric"], expected.obsm["X_groundmetric"])
    np.testing.assert_array_equal(gm.get.metric(run / "cells.h5ad").components, metric.components)
    with open(run / "importance.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["feature"] == metric.features[metric.importance().argmax()]
    np.testing.assert_allclose(sum(float(row["importance"]) for row in rows), 1.0)
    with open(run / "distances.csv") as file:
        table = list(csv.reader(file))
    assert table[0] == ["sample", *samples.obs_names]
    np.testing.assert_allclose(np.array([row[1:] for row in table[1:]], float), samples.obsp["groundmetric_distances"])
    findings = json.loads((run / "run.json").read_text())
    assert sorted(findings["files"]) == sorted(path.name for path in run.iterdir())
    assert findings["labels"] == {"control": 3, "disease": 3}
    assert (findings["n_samples"], findings["n_cells"]) == (6, cells.n_obs)
    assert next(iter(findings["importance"])) == rows[0]["feature"]


def test_findings_are_lines_for_people_or_json_for_machines(files, tmp_path, capsys):
    command = ["learn", str(files / "cells.h5ad"), *LEARN]
    assert cli.main([*command, "-o", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("learned from    6 samples (3 control, 3 disease)")
    assert [line[:16].strip() for line in printed.out.splitlines()] == [
        "learned from", "cell numbers", "features", "training", "held out", "members", "most important",
    ]  # fmt: skip
    assert "loss" not in printed.out
    assert "\r" not in printed.err  # a progress bar needs a terminal
    assert "reading" in printed.err.splitlines()[0]
    assert cli.main([*command, "-o", str(tmp_path / "b"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings == json.loads((tmp_path / "b" / "run.json").read_text())
    stored = json.loads((files / "run" / "run.json").read_text())
    assert findings["importance"] == stored["importance"]
    entry = ad.read_h5ad(tmp_path / "b" / "cells.h5ad").uns["groundmetric"]["ensemble"]
    assert findings["held_out"] == {name: float(value) for name, value in entry["scores"].items()}
    assert f"balanced accuracy {findings['held_out']['balanced_accuracy']:.2f}" in printed.out
    assert findings["params"]["method"] == "ensemble"
    assert "(of the TransportClassifier that `groundmetric predict` uses)" in printed.out
    assert f"learning from {findings['features']['text']}" in printed.err
    assert findings["n_cells_in_file"] == ad.read_h5ad(files / "cells.h5ad").n_obs > findings["n_cells"]


def test_a_single_learner_tells_of_its_epochs(files, tmp_path, capsys):
    command = ["learn", str(files / "cells.h5ad"), *LEARN, "--group", "patient", "-o", str(tmp_path / "run")]
    assert cli.main([*command, "--method", "ggml", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["params"]["method"] == "ggml"
    assert findings["params"]["group_key"] == "patient"
    assert findings["epochs"] <= 10
    assert cli.main([*command, "--method", "ggml", "--components", "2", "--replace"]) == 0
    course = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("course"))
    assert "active" in course
    assert gm.GroundMetric.load(tmp_path / "run" / "metric.gm").n_components == 2


def test_labels_of_new_samples_are_predicted(files, tmp_path, capsys):
    command = ["predict", str(files / "run"), str(files / "new.h5ad"), "--cells-per-sample", "30"]
    assert cli.main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3:2] for line in lines[:3]] == [
        ["sample", "predicted"], ["S04", "control"], ["S08", "disease"],
    ]  # fmt: skip
    assert lines[3] == "predicted by: TransportClassifier"
    assert lines[4].startswith("typicality: share of the training samples")
    assert cli.main([*command, "-o", str(tmp_path / "new"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    new = ad.read_h5ad(files / "new.h5ad")
    expected = gm.tl.transfer(new, files / "run", n_cells=30)
    for prediction, (_, shares) in zip(
        findings["predictions"], expected.obsm["groundmetric_probabilities"].iterrows(), strict=True
    ):
        assert prediction["probabilities"] == shares.to_dict()
    assert findings["predicted_by"] == "TransportClassifier"
    assert [prediction["typicality"] for prediction in findings["predictions"]] == expected.obs[
        "groundmetric_typicality"
    ].tolist()
    assert sorted(findings["files"]) == sorted(path.name for path in (tmp_path / "new").iterdir())
    np.testing.assert_array_equal(
        ad.read_h5ad(tmp_path / "new" / "cells.h5ad").obsm["X_groundmetric"], new.obsm["X_groundmetric"]
    )
    with open(tmp_path / "new" / "predictions.csv") as file:
        assert [row["predicted"] for row in csv.DictReader(file)] == ["control", "disease"]


def test_predictions_are_those_of_the_classifier_in_the_folder(files):
    run, new = files / "run", ad.read_h5ad(files / "new.h5ad")
    saved = gm.TransportClassifier.load(run / "predictor.gm")
    features = gm.GroundMetric.load(run / "metric.gm").features
    transferred = gm.tl.transfer(new, run, n_cells=None)
    D = gm.Distributions(new[:, features].X, new.obs["sample"], features=features)
    np.testing.assert_array_equal(transferred.obsm["groundmetric_probabilities"], saved.predict_proba(D))
    assert "predictor" not in ad.read_h5ad(run / "cells.h5ad").uns["groundmetric"]  # it has a file of its own


def test_neighbours_vote_after_a_single_learner_and_where_asked(files, tmp_path, capsys):
    learn = ["learn", str(files / "cells.h5ad"), *LEARN, "--method", "ggml", "-o", str(tmp_path / "single")]
    assert cli.main(learn) == 0
    capsys.readouterr()
    for run, more in ((tmp_path / "single", []), (files / "run", ["--neighbors", "3"])):
        assert cli.main(["predict", str(run), str(files / "new.h5ad"), *more]) == 0
        number = more[1] if more else "5"
        assert f"predicted by: votes of the {number} nearest training samples" in capsys.readouterr().out
    assert not (tmp_path / "single" / "predictor.gm").exists()


def test_values_on_another_scale_need_force(files, capsys):
    command = ["predict", str(files / "run"), str(files / "new.h5ad"), "--layer", "counts"]
    assert cli.main(command) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "on another scale than the values of training: they are whole numbers" in printed.err
    assert "--force" in printed.err


def test_force_is_about_the_scale_only_and_replace_about_the_folder(files, tmp_path, capsys):
    command = ["predict", str(files / "run"), str(files / "new.h5ad"), "-o", str(tmp_path / "new")]
    assert cli.main(command) == 0
    assert cli.main([*command, "--force"]) == 2
    assert "exists: give another folder, or give --replace" in capsys.readouterr().err
    assert cli.main([*command, "--replace"]) == 0
    assert cli.main([*command, "--replace", "--layer", "counts"]) == 2
    assert "--force" in capsys.readouterr().err


@pytest.mark.filterwarnings("always")
def test_force_accepts_another_scale(files, capsys):
    assert cli.main(["predict", str(files / "run"), str(files / "new.h5ad"), "--layer", "counts", "--force"]) == 0
    printed = capsys.readouterr()
    assert "warning: adata.layers['counts'] is on another scale" in printed.err
    assert "2 of 2 samples (e.g. 'S04') are farther from all training samples" in printed.err
    assert "predicted by: TransportClassifier" in printed.out
    assert "unreliable predictions, far from all training samples: S04, S08" in printed.out


def test_numbers_of_ordered_labels_are_predicted(files, tmp_path, capsys):
    cells = ad.read_h5ad(files / "cells.h5ad")
    cells.obs["dose"] = np.where(cells.obs["condition"] == "disease", 8.0, 2.0) + cells.obs["sample"].isin(
        ["S02", "S06"]
    )
    cells.write_h5ad(tmp_path / "cells.h5ad")
    more = ["--sample", "sample", "--label", "dose", "--target", "ordered", "--epochs", "1"]
    assert cli.main(["learn", str(tmp_path / "cells.h5ad"), *more, "-o", str(tmp_path / "run")]) == 0
    assert "(of the TransportRegressor that `groundmetric predict` uses)" in capsys.readouterr().out
    command = ["predict", str(tmp_path / "run"), str(files / "new.h5ad"), "-o", str(tmp_path / "new"), "--json"]
    assert cli.main(command) == 0
    findings = json.loads(capsys.readouterr().out)
    low, high = (prediction["number"] for prediction in findings["predictions"])
    assert low < 5.0 < high
    assert findings["predicted_by"] == "TransportRegressor"
    with open(tmp_path / "new" / "predictions.csv") as file:
        assert [float(row["predicted"]) for row in csv.DictReader(file)] == [low, high]
    assert cli.main(command[:3]) == 0
    assert f"{low:.4g}" in capsys.readouterr().out


def test_a_damaged_predictor_and_one_of_another_run_are_named(files, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(files / "run", run)
    content = bytearray((run / "predictor.gm").read_bytes())
    content[-100] ^= 1
    (run / "predictor.gm").write_bytes(content)
    assert cli.main(["predict", str(run), str(files / "new.h5ad")]) == 2
    assert "predictor.gm' is damaged or not a saved TransportClassifier" in capsys.readouterr().err
    D, y = gm.datasets.make_modes(points_per_mode=5, random_state=0)
    (run / "predictor.gm").unlink()
    gm.TransportClassifier(gm.GroundMetricEnsemble(1, kinds=["anova"])).fit(D, y).save(run / "predictor.gm")
    assert cli.main(["predict", str(run), str(files / "new.h5ad")]) == 2
    assert "and its metric are of two runs: learn again" in capsys.readouterr().err


@pytest.mark.filterwarnings("always")
def test_samples_that_were_learned_from_get_no_label(files, capsys):
    assert cli.main(["predict", str(files / "run"), str(files / "cells.h5ad"), "--json"]) == 0
    printed = capsys.readouterr()
    assert {prediction["predicted"] for prediction in json.loads(printed.out)["predictions"]} == {None}
    assert "warning: samples with the name of a training sample: 6" in printed.err
    assert cli.main(["predict", str(files / "run"), str(files / "cells.h5ad")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "-"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--sample": "smaple"}, "such column: there are 'sample', "),
        ({"--label": "Condition"}, "such column: there are 'condition', "),
        ({"--label": "cell_type"}, "--label is 'cell_type', but sample 'S01' has"),
        ({"--label": "patient"}, "each sample has its own label, e.g. 'P01': a label needs two samples"),
        ({"--label": "patient", "--method": "ggml"}, "each sample has its own label"),
        ({"--group": "persons"}, "--group is 'persons'"),
        ({"--method": "ensemble", "--strength": "1"}, "--strength is 1.0, which is an option of --method ggml"),
        ({"--layer": "count"}, "such entry: there are 'counts'"),
        ({"--rep": "X_pca"}, "--rep is 'X_pca'"),
        ({"--genes": "variances"}, "--genes is 'variances', which is neither a rule nor a column of var: there are"),
        ({"--cell-type": "kind"}, "--cell-type is 'kind'"),
        ({"--components": "1000", "--method": "ggml"}, "--components is 1000, but there are only"),
    ],
)
@pytest.mark.filterwarnings("ignore::groundmetric.tl.CohortWarning")
def test_wrong_names_are_one_line_with_the_existing_names(files, tmp_path, change, message, capsys):
    options = dict(zip(LEARN[::2], LEARN[1::2], strict=True)) | {"--epochs": "1"} | change
    command = ["learn", str(files / "cells.h5ad"), *(word for pair in options.items() for word in pair)]
    assert cli.main([*command, "-o", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = (line for line in printed.err.splitlines() if line.startswith("groundmetric learn: "))
    assert message in line
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=" "):  # a traceback
        cli.main([*command, "-o", str(tmp_path / "run"), "--debug"])


def test_invalid_files_are_code_2(files, tmp_path, capsys):
    (tmp_path / "text.h5ad").write_text("hello")
    for name, message in (("absent.h5ad", "No such file or directory"), ("text.h5ad", "not in the HDF5 format")):
        assert cli.main(["learn", str(tmp_path / name), *LEARN, "-o", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err
        assert cli.main(["predict", str(files / "run"), str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert cli.main(["predict", str(tmp_path), str(files / "new.h5ad")]) == 2
    assert "is not the folder of a `groundmetric learn` run" in capsys.readouterr().err
    assert cli.main(["predict", str(files / "run" / "metric.gm"), str(files / "new.h5ad")]) == 2
    assert "is a metric without labels" in capsys.readouterr().err


def test_labels_that_are_numbers_are_told_about_their_target_and_printed_rounded(files, tmp_path, capsys):
    cells = ad.read_h5ad(files / "cells.h5ad")
    ages = {name: 20.0 + 10.0 / 3.0 * k for k, name in enumerate(cells.obs["sample"].unique())}
    cells.obs["age"] = cells.obs["sample"].astype(str).map(ages)
    cells.write_h5ad(tmp_path / "aged.h5ad")
    command = ["learn", str(tmp_path / "aged.h5ad"), "--sample", "sample", "--label", "age"]
    command += ["-o", str(tmp_path / "run")]
    assert cli.main(command) == 2
    expected = "--label is 'age', which holds 6 numbers with fractions (20, 23.33, 26.67, …) rather than classes: give "
    assert capsys.readouterr().err.endswith(f"groundmetric learn: {expected}--target ordered\n")
    assert cli.main(["evaluate", *command[1:]]) == 2
    assert "rather than classes: an evaluation needs classes" in capsys.readouterr().err
    assert cli.main([*command, "--target", "ordered", "--epochs", "1", "--method", "ggml"]) == 0
    assert "6 samples (1 of 20, 1 of 23.33, 1 of 26.67, 1 of 30, " in capsys.readouterr().out


def test_the_order_of_labels_that_are_text_can_be_given(files, tmp_path, capsys):
    command = ["learn", str(files / "cells.h5ad"), *LEARN, "--method", "ggml", "-o", str(tmp_path / "run")]
    assert cli.main([*command, "--target", "ordered"]) == 2
    assert capsys.readouterr().err.endswith("make it ordered categories, or give --order control,disease\n")
    assert cli.main([*command, "--order", "disease,control", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["params"]["order"] == ["disease", "control"]
    assert findings["learner"]["target"] == "ordered"
    for order, message in (
        ("control,disesae", "--order is ['control', 'disesae'], which lacks 'disease': expected the labels of obs["),
        ("disease,control", "--order is ['disease', 'control'], but target is 'classes': leave one of them out"),
    ):
        more = ["--target", "classes"] if order == "disease,control" else []
        assert cli.main([*command, "--replace", "--order", order, *more]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.filterwarnings("always")  # of few samples for all neighbours to vote
def test_a_number_of_genes_means_the_most_variable_ones_in_every_command(files, tmp_path, capsys):
    command = [str(files / "cells.h5ad"), *LEARN[:6], "--genes", "20", "--json", "-o"]
    assert cli.main(["learn", *command, str(tmp_path / "run"), "--epochs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["n_features"] == 20
    cells = ad.read_h5ad(files / "cells.h5ad")
    drawn = gm.tl.learn(files / "cells.h5ad", "sample", "condition", n_cells=30, genes=20, max_epochs=1)
    values = cells[drawn.obs_names].X
    values = values.toarray() if hasattr(values, "toarray") else values
    most = np.argsort(-values.var(axis=0))[:20]
    assert (
        set(drawn.var_names)
        == set(cells.var_names[most])
        == set(gm.get.metric(tmp_path / "run" / "cells.h5ad").features)
    )
    assert (
        cli.main(["evaluate", *command, str(tmp_path / "other"), "--methods", "transport-5-nn", "--n-splits", "2"]) == 0
    )
    assert "the 20 most variable" in "".join(json.loads(capsys.readouterr().out)["notes"])


def test_an_output_that_exists_is_not_overwritten(files, tmp_path, capsys):
    command = ["learn", str(files / "cells.h5ad"), *LEARN, "-o", str(files / "run")]
    before = (files / "run" / "run.json").read_bytes()
    assert cli.main(command) == 2
    assert "give --replace" in capsys.readouterr().err
    assert (files / "run" / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("option", "value"),
    [("--cells-per-sample", "few"), ("--epochs", "0"), ("--strength", "-1"), ("--jobs", "0"), ("--seed", "1.5")],
)
def test_impossible_numbers_are_named(option, value, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["learn", "cells.h5ad", *LEARN, "-o", "run", option, value])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line
    assert repr(value) in line


def test_a_missing_package_is_named_with_what_to_type(files, tmp_path, monkeypatch, capsys):
    def absent(*arguments, **options):
        raise ModuleNotFoundError("No module named 'anndata'", name="anndata")

    monkeypatch.setattr(gm.tl, "learn", absent)
    assert cli.main(["learn", str(files / "cells.h5ad"), *LEARN, "-o", str(tmp_path / "run")]) == 1
    assert "anndata is needed for this: pip install 'groundmetric[single-cell]'" in capsys.readouterr().err


def older_run(run, folder, *, findings=(), entry=()):
    """A copy of a run without these parts of run.json and of the entry in cells.h5ad, by an older version."""
    shutil.copytree(run, folder)
    notes = json.loads((run / "run.json").read_text()) | {"groundmetric": "0.1.0"}
    (folder / "run.json").write_text(json.dumps({name: notes[name] for name in notes if name not in findings}))
    cells = ad.read_h5ad(run / "cells.h5ad")
    stored = cells.uns["groundmetric"] | {"version": "0.1.0"}
    cells.uns["groundmetric"] = {name: stored[name] for name in stored if name not in entry}
    cells.write_h5ad(folder / "cells.h5ad")
    return folder


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ({"findings": ["cells"]}, "of groundmetric 0.1.0 lacks 'cells': run groundmetric learn again"),
        ({"findings": ["groundmetric"]}, "of groundmetric (unknown version) lacks 'groundmetric': run"),
        ({"entry": ["ensemble"]}, "written by groundmetric 0.1.0, without 'history': learn again"),
        ({"entry": ["metric"]}, "written by groundmetric 0.1.0, without 'metric': learn again"),
    ],
)
def test_a_report_on_a_run_of_an_older_version_says_what_it_lacks(files, tmp_path, capsys, missing, message):
    run = older_run(files / "run", tmp_path / "run", **missing)
    assert cli.main(["report", str(run)]) == 2
    assert message in capsys.readouterr().err
    assert not (run / "report.html").exists()


def test_predicting_by_a_run_of_an_older_version_needs_its_metric_and_labels_only(files, tmp_path, capsys):
    command = [str(files / "new.h5ad"), "--cells-per-sample", "30"]
    assert cli.main(["predict", str(files / "run"), *command]) == 0
    expected = capsys.readouterr().out
    run = older_run(files / "run", tmp_path / "a", findings=["cells", "seconds"], entry=["history", "learner"])
    assert cli.main(["predict", str(run), *command]) == 0
    assert capsys.readouterr().out == expected
    run = older_run(files / "run", tmp_path / "b", entry=["labels"])
    assert cli.main(["predict", str(run), *command]) == 2
    assert "written by groundmetric 0.1.0, without 'labels': learn again" in capsys.readouterr().err


def test_options_are_named_by_the_parameter_of_an_error_not_by_its_text(monkeypatch, capsys, files, tmp_path):
    def refuse(*arguments, **options):
        raise ParameterError("use_rep", "a layer=b, genes is c", ": sample_key cannot help")

    monkeypatch.setattr(gm.tl, "learn", refuse)
    assert cli.main(["learn", str(files / "cells.h5ad"), *LEARN, "-o", str(tmp_path / "run")]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("groundmetric learn: "))
    assert line == "groundmetric learn: --rep is 'a layer=b, genes is c': sample_key cannot help"


def test_an_error_with_its_parameter_survives_the_way_from_a_worker():
    error = pickle.loads(pickle.dumps(ParameterError("n_cells", 0, ": expected at least 1")))
    assert (error.parameter, str(error)) == ("n_cells", "n_cells is 0: expected at least 1")
