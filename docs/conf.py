"""How Sphinx builds these pages: tools/build_docs.sh."""

import os
import pathlib
import re

import flashspan

project = "Flashspan"
version = release = flashspan.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "Flashspan"
html_show_copyright = False

myst_heading_anchors = 3

default_role = "literal"  # docstrings name arguments in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

_DOCS = pathlib.Path(__file__).resolve().parent


def _out_of_the_pages(app, page, source):
    """Links that are right in the repository and leave docs/: a file becomes a download, a folder stays as text. One to
    nowhere stays a link, of which Sphinx warns."""
    folder = (_DOCS / page).parent

    def replaced(link):
        text, target = link.groups()
        path = pathlib.Path(os.path.normpath(folder / target))
        if path.is_relative_to(_DOCS) or not path.exists():
            return link.group()
        return text if path.is_dir() else f"[{text}](path:{target})"

    source[0] = re.sub(r"\[([^\]]*)\]\((\.\./[^)#]*)\)", replaced, source[0])


def setup(app):
    app.connect("source-read", _out_of_the_pages)
