"""Files about the package agree with it: versions, requirements, addresses, workflows."""

import re
import tomllib
from pathlib import Path

import pytest

import groundmetric as gm

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text())


def test_the_version_is_the_same_everywhere():
    assert read("CITATION.cff")["version"] == gm.__version__
    assert read("packaging/recipe.yaml")["context"]["version"] == gm.__version__


def test_the_conda_recipe_requires_what_the_package_requires():
    required = {line.replace(" ", "") for line in read("packaging/recipe.yaml")["requirements"]["run"]}
    assert required == {*PROJECT["dependencies"], "python>=${{python_min}}"}
    assert PROJECT["requires-python"] == f">={read('packaging/recipe.yaml')['context']['python_min']}"


def test_the_package_is_typed():
    assert (Path(gm.__file__).parent / "py.typed").exists()


def test_pythons_of_the_workflow_are_those_of_the_classifiers_and_of_nox():
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    named = [result[1] for line in PROJECT["classifiers"] if (result := re.fullmatch(pattern, line))]
    assert read(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"] == named
    assert f"PYTHONS = {named}".replace("'", '"') in (ROOT / "noxfile.py").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_files_of_github_are_yaml_with_what_github_asks_for(path):
    content = yaml.safe_load(path.read_text())
    if path.parent.name == "workflows":
        assert {"name", "jobs", "concurrency", "permissions"} <= content.keys()
        assert all("runs-on" in job and job["steps"] for job in content["jobs"].values())
