"""flashspan.compat.flash_attn against flash-attn's documented rules."""

import pytest
import torch

import reference
from compat_reference import assert_same
from conftest import gapped
from flashspan import BadArgumentError, UnsupportedError
from flashspan.compat.flash_attn import flash_attn_func, flash_attn_varlen_func


def visible_by(q_len, kv_len, causal=False, window=(-1, -1)):
    """README of flash-attn: query i sees the keys [i + Sk - Sq - left, i + Sk - Sq + right], -1 is infinite; the causal mask is
    aligned to the bottom right."""
    visible = torch.zeros(q_len, kv_len, dtype=torch.bool)
    for i in range(q_len):
        for j in range(kv_len):
            place = i + kv_len - q_len
            visible[i, j] = ((window[0] < 0 or j >= place - window[0]) and (window[1] < 0 or j <= place + window[1])
                             and (not causal or j <= place))
    return visible


def score_by(q_len, kv_len, softcap=0.0, slopes=None):
    """README of flash-attn: a bias of -slope * |i + Sk - Sq - j|; softcap * tanh(score / softcap) before it."""
    def score_mod(score, b, h, q, k):
        if softcap > 0:
            score = softcap * torch.tanh(score / softcap)
        if slopes is not None:
            slope = slopes[h] if slopes.dim() == 1 else slopes[b, h]
            score = score - slope * (q + kv_len - q_len - k).abs()
        return score
    return score_mod


def leaves(*shapes, device, dtype=torch.float16):
    return [gapped(shape, dtype, device).detach().requires_grad_() for shape in shapes]


def batched(device, q_len=60, kv_len=83, heads=4, kv_heads=2):
    return leaves((2, q_len, heads, 32), (2, kv_len, kv_heads, 32), (2, kv_len, kv_heads, 16), device=device)


@pytest.mark.usefixtures("poisoned_results")
class TestFixedLength:
    @pytest.mark.parametrize("q_len, kv_len, options", [
        (60, 83, {}),
        (60, 83, {"causal": True}),
        (83, 60, {"causal": True}),
        (60, 83, {"window_size": (7, 3)}),
        (83, 60, {"window_size": (7, -1)}),
        (60, 60, {"window_size": (7, 30), "causal": True}),
        (1, 83, {"causal": True, "window_size": (-1, 5)}),
    ], ids=str)
    def test_masks(self, device, q_len, kv_len, options):
        inputs = batched(device, q_len, kv_len)
        out, lse, probabilities = flash_attn_func(*inputs, **options, return_attn_probs=True)
        assert probabilities is None
        visible = visible_by(q_len, kv_len, options.get("causal", False), options.get("window_size", (-1, -1)))
        assert_same(inputs, (out, lse), lambda *exact: reference.attention(*exact, visible))

    @pytest.mark.parametrize("softcap, shape", [(2.0, None), (0.0, (4,)), (3.0, (2, 4))], ids=str)
    def test_scores(self, device, softcap, shape):
        inputs = batched(device)
        slopes = None if shape is None else torch.rand(shape) / 8
        got = flash_attn_func(*inputs, causal=True, softcap=softcap, return_attn_probs=True, softmax_scale=0.4,
                              alibi_slopes=None if slopes is None else slopes.to(device))
        assert_same(inputs, got[:2], lambda *exact: reference.attention(
            *exact, visible_by(60, 83, True), score_by(60, 83, softcap, slopes), scale=0.4), units=64)

    def test_a_soft_cap_in_a_tensor_is_read_by_every_call(self, device):
        query, cap = batched(device)[0], torch.tensor(0.5)
        first = flash_attn_func(query, query, query, softcap=cap)
        cap.fill_(30.0)
        second = flash_attn_func(query, query, query, softcap=cap)
        assert not torch.equal(first, second)
        assert torch.equal(second, flash_attn_func(query, query, query, softcap=30.0))

    def test_alibi_without_a_mask_looks_both_ways(self, device):
        inputs, slopes = batched(device), torch.rand(4) / 8
        got = flash_attn_func(*inputs, alibi_slopes=slopes.to(device), return_attn_probs=True)
        assert_same(inputs, got[:2],
                    lambda *exact: reference.attention(*exact, None, score_by(60, 83, slopes=slopes)), units=64)


def packed_reference(lengths_q, lengths_k, q, k, v, causal, window, softcap, slopes):
    """(out [total_q, Hq, Dv], lse [Hq, total_q]) of each sequence by itself; rows behind the last see nothing."""
    out, lse, at_q, at_k = [], [], 0, 0
    for i, (q_len, kv_len) in enumerate(zip(lengths_q, lengths_k)):
        visible = visible_by(q_len, kv_len, causal, window)
        own = slopes[i] if slopes is not None and slopes.dim() == 2 else slopes
        if q_len and kv_len:
            one, its_lse = reference.attention(q[None, at_q:at_q + q_len], k[None, at_k:at_k + kv_len],
                                               v[None, at_k:at_k + kv_len], visible, score_by(q_len, kv_len, softcap, own))
        else:
            one = torch.zeros(1, q_len, q.shape[1], v.shape[2], dtype=torch.float64)
            its_lse = torch.full((1, q.shape[1], q_len), -torch.inf, dtype=torch.float64)
        out.append(one[0])
        lse.append(its_lse[0])
        at_q, at_k = at_q + q_len, at_k + kv_len
    rest = q.shape[0] - at_q
    out.append(torch.zeros(rest, q.shape[1], v.shape[2], dtype=torch.float64))
    lse.append(torch.full((q.shape[1], rest), -torch.inf, dtype=torch.float64))
    return torch.cat(out), torch.cat(lse, dim=1)


def starts_of(lengths, device):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)


# Sequences shorter and longer than their keys, of no query, of no key and of neither.
LENGTHS_Q, LENGTHS_K = [17, 0, 40, 5, 0, 9], [30, 8, 25, 0, 0, 9]


@pytest.mark.usefixtures("poisoned_results")
class TestVarlen:
    @pytest.mark.parametrize("options", [
        {},
        {"causal": True},
        {"window_size": (6, 2), "softcap": 2.0},
        {"causal": True, "window_size": (6, 9), "slopes": (4,)},
        {"slopes": (6, 4), "softcap": 4.0},
    ], ids=str)
    def test_values(self, device, options):
        inputs = leaves((75, 4, 32), (80, 2, 32), (80, 2, 16), device=device)  # 4 rows and 8 keys behind the last sequence
        options = dict(options)
        shape = options.pop("slopes", None)
        slopes = None if shape is None else torch.rand(shape) / 8
        got = flash_attn_varlen_func(*inputs, starts_of(LENGTHS_Q, device), starts_of(LENGTHS_K, device), 40, 30, **options,
                                     alibi_slopes=None if slopes is None else slopes.to(device), return_attn_probs=True)
        assert got[2] is None
        assert_same(inputs, got[:2], lambda *exact: packed_reference(
            LENGTHS_Q, LENGTHS_K, *exact, options.get("causal", False), options.get("window_size", (-1, -1)),
            options.get("softcap", 0.0), slopes), units=64)

    def test_without_statistics(self, device):
        inputs = leaves((75, 4, 32), (80, 2, 32), (80, 2, 16), device=device)
        out = flash_attn_varlen_func(*inputs, starts_of(LENGTHS_Q, device), starts_of(LENGTHS_K, device), 40, 30, causal=True)
        assert out.shape == (75, 4, 16)

    def test_other_lengths_need_no_look_at_them(self, cuda):
        """A graph that was captured once serves other lengths."""
        q, k, v = (torch.randn(64, 2, 64, device=cuda, dtype=torch.float16) for _ in range(3))
        starts = starts_of([20, 44], cuda)

        def call():
            return flash_attn_varlen_func(q, k, v, starts, starts, 64, 64, causal=True)

        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        starts.copy_(torch.tensor([0, 50, 64]))
        graph.replay()
        wanted, _ = packed_reference([50, 14], [50, 14], q.cpu(), k.cpu(), v.cpu(), True, (-1, -1), 0.0, None)
        assert torch.allclose(out.cpu().double(), wanted, atol=4e-3)


class TestRefusals:
    def test_of_dropout(self):
        with pytest.raises(UnsupportedError, match="dropout_p"):
            flash_attn_func(*batched("cpu"), dropout_p=0.1)
        packed, starts = torch.zeros(9, 2, 16), starts_of([9], "cpu")
        with pytest.raises(UnsupportedError, match="dropout_p"):
            flash_attn_varlen_func(packed, packed, packed, starts, starts, 9, 9, dropout_p=0.1)

    def test_of_a_block_table(self):
        packed, starts = torch.zeros(9, 2, 16), starts_of([9], "cpu")
        with pytest.raises(UnsupportedError, match="block_table"):
            flash_attn_varlen_func(packed, packed, packed, starts, starts, 9, 9, block_table=torch.zeros(1, 1).int())

    def test_of_shapes(self):
        packed, starts = torch.zeros(9, 2, 16), starts_of([9], "cpu")
        with pytest.raises(BadArgumentError, match="rank 3"):
            flash_attn_func(packed, packed, packed)
        with pytest.raises(BadArgumentError, match="rank 4"):
            flash_attn_varlen_func(packed[None], packed, packed, starts, starts, 9, 9)
        with pytest.raises(BadArgumentError, match="cu_seqlens_k"):
            flash_attn_varlen_func(packed, packed, packed, starts, starts_of([4, 5], "cpu"), 9, 9)
        with pytest.raises(BadArgumentError, match="alibi_slopes"):
            flash_attn_func(*batched("cpu"), alibi_slopes=torch.zeros(3))
