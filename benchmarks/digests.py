"""Digests of all results of about thirty small runs, to show that a change of the code does not change results.

python benchmarks/digests.py               run all cases and compare with digests.json; exit 1 where a digest differs
python benchmarks/digests.py solve search  some of them
python benchmarks/digests.py --keep        write the results to digests.json (with names: those cases only)

The cases are in digest_cases.py. Digests are equal bit for bit on one machine with the same libraries; digests.json
names these, because another BLAS rounds differently.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

for _library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):  # before numpy is imported: sums in one order
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from digest_cases import CASES, Found  # noqa: E402
from scipy import sparse  # noqa: E402

import groundmetric as gm  # noqa: E402

REFERENCE = Path(__file__).with_name("digests.json")
LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas", "anndata")
# Not results: times (names with "seconds" first), versions, and paths of files.
DROPPED = {"groundmetric", "cells", "run", "files"}


def entries(value: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield all results as arrays with dotted names."""
    if isinstance(value, gm.GroundMetric):
        value = value.components
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, pd.DataFrame):
        value = {"index": value.index} | {str(column): value[column].to_numpy() for column in value.columns}
    elif isinstance(value, list | tuple) and any(map(_has_parts, value)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in DROPPED and not str(key).startswith("seconds"):
                yield from entries(part, f"{name}.{key}" if name else str(key))
        return
    value = value.name if isinstance(value, enum.Enum) else value
    yield name, value.toarray() if sparse.issparse(value) else np.asarray(value)


def _has_parts(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray | Mapping) or dataclasses.is_dataclass(value)


def describe(array: np.ndarray) -> dict[str, Any]:
    """Return the digest of an entry with its value or range, which explains differences."""
    kind = array.dtype.kind
    if kind == "f":
        array = np.where(np.isnan(array), np.nan, array).astype("<f8")  # NaN has many bit patterns: one for all
    elif kind in "biu":
        array = array.astype("<i8")
    else:
        kind, array = "U", np.array([str(text) for text in array.ravel()], dtype=object).reshape(array.shape)
    content = "\0".join(array.ravel()).encode() if kind == "U" else np.ascontiguousarray(array).tobytes()
    shown = {"sha256": hashlib.sha256(f"{kind} {array.shape} ".encode() + content).hexdigest()}
    if array.size == 1:
        return shown | {"value": array.item() if kind in "biU" else repr(array.item())}  # JSON lacks NaN
    finite = np.empty(0) if kind == "U" else array[np.isfinite(array)]
    extent = {"min": finite.min(), "max": finite.max(), "mean": finite.mean()} if finite.size else {}
    return shown | {"shape": list(array.shape)} | {of: repr(value.item()) for of, value in extent.items()}


def run(name: str) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few epochs do not converge
        return {entry: describe(array) for entry, array in entries(CASES[name](Path(folder)))}


def differences(old: Found, new: Found) -> Iterator[str]:
    """A line for every entry that differs."""
    for entry in old | new:
        before, now = old.get(entry, {}), new.get(entry, {})
        if before.get("sha256") != now.get("sha256"):
            keys = [key for key in before | now if key != "sha256" and before.get(key) != now.get(key)]
            yield f"{entry}: " + (", ".join(f"{k} {before.get(k)} -> {now.get(k)}" for k in keys) or "other bits")


def write(cases: Found) -> None:
    """Write one line per entry, for readable differences between two versions of the file."""
    parts = []
    for name, rows in cases.items():
        lines = ",\n".join(f"  {json.dumps(entry)}: {json.dumps(row)}" for entry, row in rows.items())
        parts.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    REFERENCE.write_text(f'{{"libraries": {json.dumps(libraries())},\n"cases": {{\n' + ",\n".join(parts) + "\n}}\n")


def libraries() -> dict[str, str]:
    environment = {"python": platform.python_version(), "machine": platform.machine()}
    return environment | {name: version(name) for name in LIBRARIES}


def check(name: str, old: Found | None) -> tuple[dict[str, Any], bool]:
    """Run a case, compare it unless there is nothing to compare with, and print a line; whether nothing differs."""
    value: dict[str, Any] = {}
    started, verdict, lines = time.perf_counter(), "written", []
    try:
        value = run(name)
        if old is not None:
            lines = list(differences(old, value))
            verdict = "DIFFERENT" if lines else "same"
    except Exception as error:  # the other cases are still worth knowing
        verdict, lines = "FAILED", [f"{type(error).__name__}: {error}"]
    print(f"{name:<24}{verdict:<10}{len(value):>5} entries {time.perf_counter() - started:6.1f} s")
    print("".join(f"    {line}\n" for line in lines), end="", flush=True)
    return value, not lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the results of small runs with digests.json.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(CASES)}; none: all")
    parser.add_argument("--keep", action="store_true", help=f"write {REFERENCE.name} rather than compare with it")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(CASES)):
        parser.error(f"no case is called {unknown[0]!r}: there are {', '.join(CASES)}")
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {"libraries": libraries(), "cases": {}}
    if reference["libraries"] != libraries():
        print(f"digests.json is of {reference['libraries']}, here are {libraries()}: last bits may differ")
    value, wrong = {}, []
    for name in options.names or CASES:
        value[name], well = check(name, None if options.keep else reference["cases"].get(name, {}))
        wrong += [] if well else [name]
    if options.keep and not wrong:
        write((reference["cases"] if options.names else {}) | value)
    print(f"NOT THE SAME: {', '.join(wrong)}" if wrong else f"{len(value)} cases: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
