"""The examples of docs/python.md run as they stand."""

import pathlib
import re

import pytest

import flashspan

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
EXAMPLES = [(PAGE.read_text()[:found.start()].count("\n") + 2, found.group(1))
            for found in re.finditer(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("line, example", EXAMPLES, ids=lambda value: str(value) if isinstance(value, int) else "")
def test_example_runs(line, example):
    if not any(finding.subject == "cpu" and finding.ok for finding in flashspan.doctor()):
        pytest.skip("no CPU back end")
    exec(compile("\n" * (line - 1) + example, str(PAGE), "exec"), {"__name__": "example"})
