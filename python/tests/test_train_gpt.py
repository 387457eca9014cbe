"""bench/gpu/train_gpt.py trains: a tiny model on the CPU, by every pattern and engine."""

import json
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import gpt_attention
import gpt_report
import train_gpt
from gpt import TokenStream
from gpt_attention import Settings, attention_of_layers

TINY = ["--device", "cpu", "--layers", "2", "--width", "32", "--heads", "2", "--vocabulary", "64", "--tokens", "160",
        "--lengths", "80", "--documents", "3", "--buckets", "4"]


@pytest.mark.usefixtures("cpu")
def test_engines_learn_the_same(tmp_path):
    assert train_gpt.main([*TINY, "--steps", "12", "--minutes", "5", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "train-gpt.json").read_text())
    assert [group["pattern"] for group in result["groups"]] == ["documents", "hash", "qk"]
    for group in result["groups"]:
        losses = {engine["engine"]: engine["losses"] for engine in group["engines"]}
        assert all(len(of_engine) == 12 for of_engine in losses.values())
        assert losses["flashspan"][-1] < losses["flashspan"][0]
        assert losses["flashspan"] == pytest.approx(losses["flex"], abs=0.02)
        assert losses["flashspan"] != losses["sdpa"]
    assert "| 80 | hash | 2 | flashspan | 12 |" in (tmp_path / "train-gpt.md").read_text()
    assert (tmp_path / "train-gpt.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("cpu")
def test_time_that_has_run_out_ends_a_group_after_one_step(tmp_path):
    train_gpt.main([*TINY, "--patterns", "qk", "--engines", "sdpa", "--minutes", "0", "--out", str(tmp_path)])
    group, = json.loads((tmp_path / "train-gpt.json").read_text())["groups"]
    assert len(group["engines"][0]["losses"]) == 1


@pytest.mark.parametrize("pattern", ["documents", "hash", "qk"])
def test_engines_compute_one_function(device, pattern, monkeypatch):
    monkeypatch.setattr(gpt_attention, "_compiled", lambda function: function)  # FlexAttention's compile takes half a minute
    _, doc = TokenStream(2, 96, 4, 64, torch.device(device)).step(5)
    rows = [torch.randn(2, 96, 2, 32, device=device, dtype=torch.bfloat16) for _ in range(3)]
    ours, theirs = (attention_of_layers(pattern, engine, doc, 3, Settings(buckets=4))(1)(*rows)
                    for engine in ("flashspan", "flex"))
    assert torch.allclose(ours.float(), theirs.float(), atol=0.03)
    assert ours.float().abs().max() > 0.5


def test_the_stream_is_the_same_for_everyone_and_has_its_documents():
    stream = TokenStream(2, 200, 5, 64, torch.device("cpu"))
    (tokens, doc), (again, _) = stream.step(3), stream.step(3)
    assert torch.equal(tokens, again) and not torch.equal(tokens, stream.step(4)[0])
    assert tokens.shape == (2, 201) and doc.shape == (2, 200) and doc.dtype == torch.int32
    assert tokens.min() >= 0 and tokens.max() < 64
    assert (doc.diff(dim=1) >= 0).all() and (doc[:, 0] == 0).all()


def test_a_failure_of_ours_or_another_curve_is_told():
    def group(ours, failure=None):
        return {"engines": [{"engine": "flashspan", "failure": failure, "losses": ours},
                            {"engine": "flex", "failure": None, "losses": curve},
                            {"engine": "flex_nudged", "failure": None, "losses": [loss + 0.01 for loss in curve]}]}

    curve = [2.0, 1.8, 1.7, 1.65]
    assert gpt_report.is_right(group([loss - 0.015 for loss in curve]))
    assert not gpt_report.is_right(group([loss - 0.03 for loss in curve]))
    assert not gpt_report.is_right(group([], failure="RuntimeError: no"))


def test_what_it_does_not_know_is_refused(capsys, tmp_path):
    with pytest.raises(SystemExit):
        train_gpt.main(["--out", str(tmp_path), "--engines", "other"])
    assert "takes flashspan, flex, sdpa" in capsys.readouterr().err
