"""What the package says about masks, kernels and the machine."""

import logging
import os
import pickle
import struct
import subprocess
import sys
import zlib

import pytest
import torch

import flashspan
from flashspan import masks


def pixels_of(png):
    """(width, height, rows of grey) of a PNG without filters."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at:at + 8])
        data = png[at + 8:at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length:at + 12 + length])[0] == zlib.crc32(name + data)
        chunks[name] = data
        at += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1)
    return width, height, [lines[row * (width + 1) + 1:(row + 1) * (width + 1)] for row in range(height)]


class TestPicture:
    def test_shows_each_pair_of_a_short_mask(self):
        picture = masks.causal().picture(8, 12, pixels=24)
        width, height, rows = pixels_of(picture.png())
        assert (width, height) == (24, 16)
        for q in range(8):
            for k in range(12):
                assert rows[2 * q][2 * k] == rows[2 * q + 1][2 * k + 1] == (60 if k <= q + 4 else 255)

    def test_shows_tiles_of_a_long_one(self):
        width, height, rows = pixels_of(masks.causal().picture(1000, pixels=100)._repr_png_())
        assert (width, height) == (100, 100)
        assert rows[3][2] == 60 and rows[3][3] == 150 and rows[3][4] == 255

    def test_goes_to_a_file(self, tmp_path):
        picture = masks.causal().picture(16)
        picture.save(tmp_path / "mask.png")
        assert (tmp_path / "mask.png").read_bytes() == picture.png()

    def test_becomes_a_figure(self):
        pytest.importorskip("matplotlib")
        axes = masks.causal().picture(16, 32).figure().axes[0]
        assert axes.get_xlabel() == "key" and axes.get_xlim() == (0, 32)


class TestExplanation:
    def test_says_how_a_mask_is_applied(self):
        explanation = masks.causal().explain(1024, head_dim=64, arch="sm_90a")
        assert [plan.direction for plan in explanation.directions] == ["forward", "backward"]
        assert explanation.directions[0].lowering == "row_ranges"
        assert explanation.directions[0].kernel_family == "hopper"
        assert explanation.density == pytest.approx(1025 / 2048)
        assert "hopper" in str(explanation) and "0.5005" in str(explanation)

    def test_takes_a_score(self):
        score = flashspan.Score("score * gain", gain=2.0)
        assert masks.causal().explain(64, score=score).score_derivative == "gain"

    def test_takes_dtypes_of_torch(self):
        assert masks.causal().explain(64, dtype=torch.float16) == masks.causal().explain(64, dtype="float16")

    def test_reads_tensors_wherever_they_are(self, device):
        mask = masks.document(torch.arange(64, device=device) // 16)
        assert mask.density(64) == 0.25
        assert masks.flashmask(torch.full((2, 1, 64, 1), 32, device=device), causal=True).density(64, batch=2) == pytest.approx(
            sum(min(q + 1, 64) for q in range(32)) / 64**2)

    def test_refuses_what_it_does_not_know(self):
        with pytest.raises(ValueError, match="arch"):
            masks.causal().explain(64, arch="sm_x")
        with pytest.raises(ValueError, match="dtype"):
            masks.causal().explain(64, dtype="float8")


def test_doctor_finds_the_parts_of_the_machine():
    found = flashspan.doctor()
    assert {"driver", "nvrtc", "cpu", "cache"} <= {finding.subject for finding in found}
    assert all(finding.ok or finding.remedy for finding in found)
    assert all(finding.subject in str(found) for finding in found)


def test_compiles_are_logged(caplog, device):
    query = torch.randn(1, 16, 1, 16, device=device).half()
    with caplog.at_level(logging.DEBUG, logger="flashspan"):
        flashspan.attention(query, query, query, mask="(q * 7 - k) % 5 != 2")
    assert any(record.name == "flashspan" and "forward" in record.getMessage() for record in caplog.records)


def test_a_level_that_does_not_read_is_told_of():
    program = "import numpy, flashspan; query = numpy.zeros((1, 4, 1, 16), numpy.float32); flashspan.attention(query, query, query)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          env={**os.environ, "FLASHSPAN_LOG": "loud"})
    assert "FLASHSPAN_LOG: got loud; takes debug" in done.stderr


def test_errors_survive_pickling():
    with pytest.raises(flashspan.BadExpressionError) as caught:
        flashspan.Mask("q >=")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.code == "bad_expression" and type(copy) is type(caught.value)


def test_torch_is_not_needed():
    program = """
import sys
sys.modules["torch"] = None
import numpy, flashspan
query = numpy.random.default_rng(0).standard_normal((1, 8, 1, 16), numpy.float32)
out = flashspan.attention(query, query, query, mask=flashspan.Mask(lambda b, h, q, k: q >= k))
assert numpy.allclose(out[0, 0], query[0, 0])
try:
    flashspan.Mask(lambda b, h, q, k: q >= k and k > 3)
except flashspan.TraceError as error:
    print("refused:", error.detail.split(":")[0])
"""
    if not any(finding.subject == "cpu" and finding.ok for finding in flashspan.doctor()):
        pytest.skip("no CPU back end")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: at <string>")
