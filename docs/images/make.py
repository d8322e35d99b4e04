"""Draw docs/images/report.png, the top of a report as a browser shows it: `make picture`.

Needs chromium. The cohort is simulated, so the picture can be made anywhere and again when the report changes.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import groundmetric as gm
from groundmetric.cli import main

PICTURE = Path(__file__).resolve().parent / "report.png"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--window-size=1200,1500",
)  # fmt: skip


def write_report(folder: Path) -> Path:
    """Learn from a simulated cohort and write its report, both by the command line."""
    cells, run = folder / "cells.h5ad", folder / "run"
    gm.datasets.make_cohort(8, 100, 300, random_state=0).write_h5ad(cells)
    columns = ["--sample", "sample", "--label", "condition"]
    for arguments in (["learn", str(cells), *columns, "-o", str(run)], ["report", str(run)]):
        if code := main(arguments):
            sys.exit(code)
    return next(run.glob("*.html"))


def take_picture(page: Path, folder: Path) -> None:
    """Screenshot of the top of a page, in 128 colours so that the file stays small."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("chromium is not installed: the picture is a screenshot of the report")
    shot = folder / "shot.png"
    options = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--screenshot={shot}"]
    subprocess.run([chromium, *options, page.as_uri()], check=True, capture_output=True, timeout=300)
    picture = Image.open(shot).convert("RGB")
    picture.resize((900, 1125), Image.Resampling.LANCZOS).quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        take_picture(write_report(Path(name)), Path(name))
    print(PICTURE, f"{PICTURE.stat().st_size // 1024} kB")
