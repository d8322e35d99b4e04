"""Settings of Sphinx: `make docs` builds docs/_build/html without network, and warnings are errors."""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("MPLBACKEND", "Agg")

from docutils import nodes  # noqa: E402

import groundmetric  # noqa: E402

project = "groundmetric"
author = "groundmetric developers"
copyright = "groundmetric developers"
version = release = groundmetric.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "executed_pages",
    "reference",
]
exclude_patterns = ["_build", "generated/figures", "generated/notebooks"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Prompts of console blocks are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autosummary_generate = True
autodoc_mock_imports = [name for name in ("torch", "patpy", "pertpy") if not importlib.util.find_spec(name)]
autodoc_typehints = "none"  # types are in the docstrings
numpydoc_show_class_members = False  # the template of classes lists them
templates_path = ["_templates"]
default_role = "py:obj"

html_theme = "pydata_sphinx_theme"
html_title = "groundmetric"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_sidebars = {"comparison": []}  # its tables need the whole width
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def keep_spreads_whole(app, doctree):
    """Write "0.96 ± 0.04" without breakable spaces in tables, where each part would be a line of its own."""
    for table in doctree.findall(nodes.table):
        for text in list(table.findall(nodes.Text)):
            if " ± " in text:
                text.parent.replace(text, nodes.Text(text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")))


def setup(app):
    app.connect("doctree-read", keep_spreads_whole)
