#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox[uv]>=2024.10"]
# ///
"""Tests on every supported Python and on the lowest supported versions: `make test-versions`, or `nox -s lowest`.

What follows `--` goes to pytest: `nox -s tests-3.13 -- tests/transport`. Pythons that are not installed are skipped.
"""

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PYTEST = ["python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart=0"]


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Format, rules, types and docstrings."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("mypy", "--strict", "--config-file=", "tests/test_types.py")
    session.run("python", "tests/check_docstrings.py")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Tests with the newest versions of everything."""
    session.install("-e", ".[test]")
    session.run(*PYTEST, *session.posargs)


@nox.session(python="3.11", default=False, venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Tests with the lowest versions that pyproject.toml allows. Warnings of old libraries are not errors here."""
    session.install("--resolution", "lowest-direct", "-e", ".[test]")
    # scikit-learn 1.6 imports its estimator checks only with this variable if array_api_compat is installed.
    session.run(*PYTEST, "-W", "default", *session.posargs, env={"SCIPY_ARRAY_API": "1"})


@nox.session(python=["3.11", "3.12"], default=False)
def integrations(session: nox.Session) -> None:
    """Tests and pages of the adapters, with the packages that they extend; on 3.11, an older pertpy."""
    session.install("-e", ".[test,patpy,pertpy]")
    # tests/integrations goes first: it imports the packages, whose dependencies warn.
    where = ["tests/integrations", "src/groundmetric/integrations", "tests/docs/test_cells.py"]
    session.run("python", "-m", "pytest", *where, "-k", "adapters or patpy or pertpy", *session.posargs)


@nox.session(python="3.12", default=False)
def docs(session: nox.Session) -> None:
    """The site, warnings as errors."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


if __name__ == "__main__":
    nox.main()
