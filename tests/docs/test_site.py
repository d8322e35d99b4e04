"""The site builds without a warning and without network; every public name has a page; links lead somewhere."""

import html
import os
import re
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("myst_parser")
pytest.importorskip("pydata_sphinx_theme")

from executed_pages import Output, blocks, notebook, shown
from reference import public_names

from .pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Pages are not run here: the other tests of this folder run them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "run_pages=0"]
    done = subprocess.run(
        [*command, "-d", folder / "trees", ROOT / "docs", folder / "html"], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Links:
    """Addresses that a page links to, and the anchors that it has."""

    def __init__(self, text):
        self.links = set(map(html.unescape, re.findall(r'<(?:a|img)\s[^>]*?\b(?:href|src)="([^"]+)"', text)))
        self.anchors = set(map(html.unescape, re.findall(r'\s(?:id|name)="([^"]+)"', text)))


def test_every_public_name_has_a_page(site):
    missing = [
        f"{module}.{name}"
        for module, names in public_names().items()
        for name in names
        if not (site / "generated" / "api" / f"{module}.{name}.html").exists()
    ]
    assert not missing
    assert sum(map(len, public_names().values())) > 100


def test_links_within_the_site_lead_to_a_page_and_an_anchor(site):
    pages = {str(path): Links(path.read_text()) for path in site.rglob("*.html")}
    links = {(path, link) for path, page in pages.items() for link in page.links}
    assert len(pages) > 100
    assert len(links) > 1000
    assert not [(path, link) for path, link in links if not leads_somewhere(path, link, pages)]


def leads_somewhere(path: str, link: str, pages: dict[str, Links]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path))) if parts.path else path
    if target not in pages:
        return os.path.isfile(target)
    return parts.fragment in ("", "top") or unquote(parts.fragment) in pages[target].anchors


def test_all_pages_of_docs_are_in_the_site(site):
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= {path.stem for path in site.glob("*.html")}


def test_the_home_page_asks_other_machines_for_nothing(site):
    text = (site / "index.html").read_text()
    assert not [link for link in ('src="http', 'stylesheet" href="http', "@import url(http") if link in text]


def test_what_a_block_prints_and_draws_is_shown_below_it(tmp_path):
    text = "```python\n1\n```\nthen\n```python\n2\n```\n"
    first, second = blocks(text)
    figure = tmp_path / "generated" / "one.png"
    page = shown(text, {first.end: Output("seen\n", 1), second.end: Output(figures=[figure])}, tmp_path)
    assert page.index("seen\n1") < page.index("then") < page.index("![figure](/generated/one.png)")
    assert page.replace(" ", "").count("```python") == 2


def test_the_code_of_a_figure_is_in_a_dropdown_below_it(tmp_path):
    text = "<!-- figure -->\n```python\ndraw()\n```\n"
    image = tmp_path / "generated" / "one.png"
    page = shown(text, {blocks(text)[0].end: Output(figures=[image])}, tmp_path)
    assert page.index("![figure](/generated/one.png)") < page.index("{dropdown}") < page.index("draw()")


def test_a_page_becomes_a_notebook_with_its_code_in_order():
    text = "# Title\n\n[link](other.md)\n```python\nx = 1\n```\n<!-- not run: WHY -->\n```python\ny\n```\n"
    cells = notebook(text)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown"]
    assert cells[0]["source"] == "# Title\n\nlink"
    assert cells[1]["source"] == "x = 1"
