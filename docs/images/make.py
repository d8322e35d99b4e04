"""Draw docs/images/report.png, summary and samples of a report as a browser shows them: `make picture`.

Needs chromium and its driver. The cohort is simulated, so the picture can be made anywhere, and again when the report
changes.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

import groundmetric as gm
from groundmetric.cli import main

PICTURE = Path(__file__).resolve().parent / "report.png"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--window-size=1100,5000",
)  # fmt: skip
# Sections of the report, and how much of each is shown, in pixels.
SECTIONS = {"summary": 505, "samples": 640}


def write_report(folder: Path) -> Path:
    """Learn from a simulated cohort and write its report, both by the command line."""
    cells, run = folder / "cells.h5ad", folder / "run"
    gm.datasets.make_cohort(8, 100, 300, random_state=0).write_h5ad(cells)
    columns = ["--sample", "sample", "--label", "condition"]
    for arguments in (["learn", str(cells), *columns, "-o", str(run)], ["report", str(run), "--permutations", "19"]):
        if code := main(arguments):
            sys.exit(code)
    return next(run.glob("*.html"))


def take_pictures(page: Path, folder: Path) -> list[Image.Image]:
    """Screenshots of the sections of a page, cut to their heights."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        sys.exit("chromium and its driver are not installed: the picture is a screenshot of the report")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.get(page.as_uri())
        shots = [Image.open(io.BytesIO(browser.find_element(By.ID, name).screenshot_as_png)) for name in SECTIONS]
    finally:
        browser.quit()
    return [
        shot.crop((0, 0, shot.width, min(height, shot.height)))
        for shot, height in zip(shots, SECTIONS.values(), strict=True)
    ]


def stack(pictures: list[Image.Image]) -> Image.Image:
    """Return the pictures below each other, in 128 colours to keep the file small."""
    sheet = Image.new(
        "RGB",
        (max(picture.width for picture in pictures) + 40, sum(picture.height for picture in pictures) + 20),
        "white",
    )
    top = 10
    for picture in pictures:
        sheet.paste(picture, (20, top))
        top += picture.height
    return sheet.quantize(128)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        stack(take_pictures(write_report(Path(name)), Path(name))).save(PICTURE, optimize=True)
    print(PICTURE, f"{PICTURE.stat().st_size // 1024} kB")
