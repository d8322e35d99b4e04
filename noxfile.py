#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2024.10"]
# ///
"""Tests on every supported Python and on the lowest supported versions: `make test-versions`, or `nox -s lowest`.

What follows `--` goes to pytest: `nox -s tests-3.13 -- tests/transport`. Pythons that are not installed are skipped.
"""

import re
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PYTEST = ["python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "--max-worker-restart=0"]


def lowest_versions() -> list[str]:
    """Every requirement of pyproject.toml that names a lowest version, held to its patch releases."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = {re.sub(r"\[.*\]", "", line) for lines in lists for line in lines if ">=" in line}
    return sorted({f"{name}=={_patches(version)}" for name, version in (line.split(">=") for line in found)})


def _patches(version: str) -> str:
    """2 → 2.0.*, 3.8 → 3.8.*, 0.9.5 → 0.9.5: the first release that the requirement allows, and its fixes."""
    parts = version.split(".")
    return version if len(parts) > 2 else ".".join([*parts, "0"][:2]) + ".*"


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Format, rules, types and docstrings."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("python", "tests/check_docstrings.py")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Tests with the newest versions of everything."""
    session.install("-e", ".[test]")
    session.run(*PYTEST, *session.posargs)


@nox.session(python="3.11", default=False)
def lowest(session: nox.Session) -> None:
    """Tests with the lowest versions that pyproject.toml allows. Warnings of old libraries are not errors here."""
    constraints = Path(session.create_tmp()) / "lowest.txt"
    constraints.write_text("\n".join(lowest_versions()) + "\n")
    session.install("-e", ".[test]", "-c", str(constraints))
    session.run(*PYTEST, "-W", "default", *session.posargs)


@nox.session(python="3.12", default=False)
def docs(session: nox.Session) -> None:
    """The site, warnings as errors."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


if __name__ == "__main__":
    nox.main()
