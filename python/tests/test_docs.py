"""The pages in docs/ build without a warning, and their examples run as they stand."""

import pathlib
import re
import subprocess
import sys

import pytest

import flashspan

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "python").glob("*.md"))
# The page, the line and the text of every example.
EXAMPLES = [pytest.param(page, page.read_text()[:found.start()].count("\n") + 2, found.group(1),
                         id=f"{page.stem}-{page.read_text()[:found.start()].count(chr(10)) + 2}")
            for page in PAGES for found in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)]


def test_every_page_that_should_have_examples_has_some():
    without = {page.stem for page in PAGES} - {example.values[0].stem for example in EXAMPLES}
    assert without == {"api"}


@pytest.mark.parametrize("page, line, example", EXAMPLES)
def test_example_runs(page, line, example):
    if not any(finding.subject == "cpu" and finding.ok for finding in flashspan.doctor()):
        pytest.skip("no CPU back end")
    if "transformers" in example:
        pytest.importorskip("transformers")
    exec(compile("\n" * (line - 1) + example, str(page), "exec"), {"__name__": "example"})


def test_the_pages_build_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    built = subprocess.run([sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--builder", "html",
                            DOCS, tmp_path], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    reference = (tmp_path / "python" / "api.html").read_text()
    for name in ("flashspan.attention", "flashspan.Mask", "flashspan.masks.causal_document", "flashspan.errors.TraceError",
                 "flashspan.compat.flex.flex_attention", "flashspan.compat.transformers.register"):
        assert f'id="{name}"' in reference
