"""flashspan.tune on the CPU, and Triton's configs and result files read as ours."""

import json
import types

import pytest
import torch

import flashspan
from flashspan import BadArgumentError, Config, UnsupportedError, calls

triton = pytest.importorskip("triton")


def _call(length=100, **options):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, length, 2, 32, generator=generator) for _ in range(3))
    return dict(query=query, key=key, value=value, mask="causal", **options)


def test_a_config_is_written_and_read_as_triton_s():
    ours = Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=2)
    theirs = triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=2)
    assert Config(theirs) == ours
    assert str(ours.to_triton()) == str(theirs)
    assert ours.all_kwargs() == theirs.all_kwargs()
    assert ours.tile == (128, 64, 8, 2)
    assert eval(repr(ours)) == ours
    assert Config({"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64}, 8, 2) == ours
    assert Config({"BLOCK_M": 64, "BLOCK_N": 64}).num_warps == triton.Config({}).num_warps


def test_a_config_needs_no_triton():
    like = types.SimpleNamespace(kwargs={"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=1)
    assert Config(like).tile == (64, 32, 4, 1)


@pytest.mark.parametrize(("arguments", "options", "error", "argument"), [
    ({"BLOCK_M": 64}, {}, BadArgumentError, "config"),
    ({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, {}, BadArgumentError, "config"),
    ({"BLOCK_M": 64, "BLOCK_N": 0}, {}, BadArgumentError, "BLOCK_N"),
    ({"BLOCK_M": 64, "BLOCK_N": 64}, {"num_warps": 2.5}, BadArgumentError, "num_warps"),
    ({"BLOCK_M": 64, "BLOCK_N": 64}, {"num_ctas": 2}, UnsupportedError, "num_ctas"),
    ({"BLOCK_M": 64, "BLOCK_N": 64}, {"maxnreg": 128}, UnsupportedError, "maxnreg"),
    (64, {}, BadArgumentError, "config"),
])
def test_what_is_no_config_of_ours_is_refused_by_name(arguments, options, error, argument):
    with pytest.raises(error) as raised:
        Config(arguments, **options)
    assert raised.value.argument == argument


def _tiles(**options):
    """Of the kernels of both directions."""
    return [record["spec"].split()[4] for record in flashspan.prepare([_call(**options)])]


def test_a_call_takes_the_configs_that_it_is_given():
    forward, backward = (Config({"BLOCK_M": rows, "BLOCK_N": 32}, num_warps=1, num_stages=1) for rows in (128, 32))
    chosen = _tiles()
    assert "128x32" not in chosen
    assert _tiles(config=forward) == ["128x32", chosen[1]]
    assert _tiles(backward_config=backward) == [chosen[0], "32x32"]
    assert _tiles(config=forward.to_triton(), backward_config=backward.to_triton()) == ["128x32", "32x32"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_config_changes_no_result(compiled):
    forward, backward = (Config({"BLOCK_M": rows, "BLOCK_N": 32}, num_warps=1, num_stages=1) for rows in (128, 32))

    def gradients(**options):
        call = _call()
        for name in ("query", "key", "value"):
            call[name].requires_grad_()
        attention = torch.compile(flashspan.attention, fullgraph=True, backend="eager") if compiled else flashspan.attention
        out = attention(**call, **options)
        out.sum().backward()
        return out, *(call[name].grad for name in ("query", "key", "value"))

    for ours, standard in zip(gradients(config=forward, backward_config=backward), gradients()):
        torch.testing.assert_close(ours, standard, rtol=1e-5, atol=1e-5)


def test_numpy_arrays_take_a_config_too():
    call = {name: value.numpy() if torch.is_tensor(value) else value for name, value in _call().items()}
    config = Config({"BLOCK_M": 32, "BLOCK_N": 128}, num_warps=1, num_stages=1)
    out, standard = flashspan.attention(**call, config=config), flashspan.attention(**call)
    torch.testing.assert_close(torch.from_numpy(out), torch.from_numpy(standard), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("argument", ["config", "backward_config"])
def test_a_config_that_a_kernel_cannot_have_is_refused_with_those_it_can(argument):
    call = _call()
    call["query"].requires_grad_()
    with pytest.raises(BadArgumentError, match="tile: got 48x32.*32x64"):
        flashspan.attention(**call, **{argument: Config({"BLOCK_M": 48, "BLOCK_N": 32}, 1, 1)}).sum().backward()


def test_result_files_of_triton_are_read_fastest_first(tmp_path):
    configs = [triton.Config({"BLOCK_M": rows, "BLOCK_N": 64}, num_warps=4, num_stages=stages)
               for rows, stages in ((64, 1), (128, 2), (32, 1))] + [triton.Config({"BLOCK_K": 8})]
    times = [[0.5, 0.4, 0.6], [0.25, 0.2, 0.3], float("inf"), [0.1, 0.1, 0.1]]
    path = tmp_path / "kernel.autotune.json"
    path.write_text(json.dumps({"key": [1], "configs_timings": [(config.__dict__, time) for config, time in zip(configs, times)]}))
    assert flashspan.read_triton_autotune(path) == [
        (Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=4, num_stages=2), 0.25),
        (Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=1), 0.5)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"configs_timings": [[{}, 1]]}', '{"configs_timings": 3}'])
def test_other_files_are_refused_by_name(tmp_path, text):
    path = tmp_path / "other.autotune.json"
    path.write_text(text)
    with pytest.raises(BadArgumentError) as raised:
        flashspan.read_triton_autotune(path)
    assert raised.value.argument == "path"


def test_tuning_measures_both_directions_and_finds_nothing_wrong():
    seen = []
    results = flashspan.tune([_call()], remember=False,
                             progress=lambda direction, done, all, candidate: seen.append((direction, done, all)))
    assert [result.direction for result in results] == ["forward", "backward"]
    for result in results:
        assert len(result.candidates) == 9
        assert {candidate.outcome for candidate in result.candidates} <= {"measured", "hopeless"}
        assert result.candidates[0].config == result.default == Config({"BLOCK_M": 64, "BLOCK_N": 64}, 1, 1)
        assert 0 < result.milliseconds <= result.default_milliseconds
        assert result.speedup >= 1
    assert seen == [(direction, done, 9) for direction in ("forward", "backward") for done in range(1, 10)]


def test_configs_of_triton_are_tried():
    configs = [triton.Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=1, num_stages=1),
               triton.Config({"BLOCK_M": 48, "BLOCK_N": 64}, num_warps=1, num_stages=1)]
    result, = flashspan.tune([_call()], configs=configs, backward=False, remember=False)
    default, legal, illegal = result.candidates
    assert legal.config == Config(configs[0])
    assert legal.outcome in ("measured", "hopeless")
    assert illegal.outcome == "failed"
    assert "48x64" in illegal.note


def test_configs_are_pruned_as_triton_does():
    asked = []

    def early(configs, named_args):
        assert named_args["direction"] == "forward"
        return [config for config in configs if config.BLOCK_N == 64]

    def model(BLOCK_M, BLOCK_N, num_warps, num_stages, query, **others):
        asked.append((BLOCK_M, BLOCK_N))
        return -BLOCK_M

    result, = flashspan.tune([_call()], backward=False, remember=False,
                             prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 2})
    assert sorted(asked) == [(32, 64), (64, 64), (128, 64)]
    assert [candidate.config.BLOCK_M for candidate in result.candidates] == [64, 128], "the default, and the best two of the model"


def test_calls_that_agree_in_the_key_are_tuned_once():
    tiles = [Config({"BLOCK_M": 32, "BLOCK_N": 64}, 1, 1)]
    attentions = [_call(64), _call(96), _call(64)]
    assert len(flashspan.tune(attentions, tiles, key=["head_dim"], backward=False, remember=False)) == 1
    assert len(flashspan.tune(attentions, tiles, key=["q_len", "mask"], backward=False, remember=False)) == 2
    assert len(flashspan.tune(attentions, tiles, backward=False, remember=False)) == 3
    with pytest.raises(BadArgumentError, match="key"):
        flashspan.tune(attentions, tiles, key=["length"])


def test_unknown_ways_to_prune_are_refused():
    with pytest.raises(BadArgumentError, match="prune_configs_by"):
        flashspan.tune([_call()], prune_configs_by={"top": 3}, backward=False, remember=False)


def test_attention_after_tuning_gives_the_same_results():
    arguments = _call(150)
    before = flashspan.attention(**arguments)
    flashspan.tune([arguments], backward=False)
    assert torch.allclose(flashspan.attention(**arguments), before, atol=1e-5)


def test_a_tuning_that_is_broken_off_leaves_no_call_described_for_another_tile():
    def interrupt(*_):
        raise KeyboardInterrupt

    flashspan.attention(**_call())
    assert calls._calls
    with pytest.raises(KeyboardInterrupt):
        flashspan.tune([_call()], progress=interrupt)
    assert not calls._calls
