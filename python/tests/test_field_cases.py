"""Field cases: reports of what went wrong elsewhere, as far as the Python package can get them wrong; tests/ has the others.

A test's name begins with the case's number. Values are compared with dense attention in fp64 or with closed forms.
"""

import itertools
import math

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

import flashspan
import reference
from compat_reference import assert_same
from conftest import assert_close, gapped
from flashspan import masks
from flashspan.compat import flash_attn, flex


def leaves(device, *shapes, dtype=torch.float16):
    return [gapped(shape, dtype, device).detach().requires_grad_() for shape in shapes]


def rows(device, length, heads=2, kv_heads=2, dim=32, kv_len=None, dtype=torch.float16, batch=1):
    """Query [B, S, H, D], key and value."""
    kv_shape = (batch, kv_len or length, kv_heads, dim)
    return leaves(device, (batch, length, heads, dim), kv_shape, kv_shape, dtype=dtype)


def compare(inputs, mask, visible, units=32.0, **options):
    """`visible`: bool [.., Sq, Sk]."""
    got = flashspan.attention(*inputs, mask=mask, return_lse=True, **options)
    assert_same(inputs, got, lambda *exact: reference.attention(*exact, visible, scale=options.get("scale")), units=units)
    return got


def counts_of(device, q_len, kv_len, attend, batch=1, dim=16):
    """How many keys each row sees, of `attend` (query, key, value) with (out, lse): of zeros, lse is the count's logarithm."""
    query, key = (torch.zeros(batch, length, 1, dim, device=device).half() for length in (q_len, kv_len))
    lse = attend(query, key, key)[1]
    return torch.exp(lse[:, 0].double()).round().long().cpu()


def attend_under(mask):
    return lambda *tensors: flashspan.attention(*tensors, mask=mask, return_lse=True)


def grid(q_len, kv_len):
    return torch.arange(q_len)[:, None], torch.arange(kv_len)[None, :]


def bits(*tensors):
    return [tensor.detach().clone() for tensor in tensors]


def assert_same_bits(left, right):
    for mine, theirs in zip(left, right, strict=True):
        assert torch.equal(mine, theirs)


# -- rows that see nothing


def test_f001_a_row_that_sees_nothing_changes_no_other(device):
    seen = torch.ones(6, 10, dtype=torch.bool).tril()
    seen[5] = False
    inputs = rows(device, 6, dim=16, kv_len=10)
    looked_up = seen.to(device)
    out, lse = compare(inputs, flashspan.Mask(lambda b, h, q, k: looked_up[q, k]), seen, scale=0.125)
    assert torch.all(out[:, 5] == 0) and torch.all(lse[..., 5] == -torch.inf)
    query, key, value = inputs
    without = flashspan.attention(query[:, :5], key, value, mask=flashspan.Mask(lambda b, h, q, k: looked_up[q, k]), scale=0.125,
                                  deterministic=True)
    whole = flashspan.attention(*inputs, mask=flashspan.Mask(lambda b, h, q, k: looked_up[q, k]), scale=0.125, deterministic=True)
    for mine, theirs in zip(torch.autograd.grad(whole.sum(), inputs), torch.autograd.grad(without.sum(), inputs)):
        assert_close(mine, theirs, torch.float16, units=1)


@pytest.mark.parametrize("q_len, kv_len, options, empty", [
    (48, 15, {"causal": True}, 33), (129, 33, {"window_size": (32, 64)}, 32)], ids=["causal", "window"])
def test_f004_rows_before_the_first_key_are_empty(device, q_len, kv_len, options, empty):
    query = torch.randn(1, q_len, 32, 128, device=device).bfloat16()
    key = torch.randn(1, kv_len, 8, 128, device=device).bfloat16()
    out, lse, _ = flash_attn.flash_attn_func(query, key, torch.ones_like(key), **options, return_attn_probs=True)
    assert torch.all(out[:, :empty] == 0) and torch.all(lse[..., :empty] == -torch.inf)
    assert torch.all((out[:, empty:] - 1).abs() <= 2**-8) and torch.isfinite(lse[..., empty:]).all()


def test_f006_windows_whose_first_tile_is_empty(device):
    ones = torch.zeros(1, 600, 1, 16, device=device).half()
    ones[..., :2] = 1
    out, lse = flashspan.attention(ones, ones, ones, mask=masks.causal_window(9), scale=2**-0.5, return_lse=True)
    assert torch.equal(out, ones)
    wanted = 2**0.5 + torch.log(torch.arange(1.0, 601).clamp(max=10).double())
    assert torch.allclose(lse[0, 0].double().cpu(), wanted, atol=1e-4)


# -- lengths


@pytest.mark.parametrize("length", [1, 17, 127, 129])
def test_f008_gradients_of_lengths_beside_a_tile(device, length):
    inputs = rows(device, length, dim=64, dtype=torch.bfloat16)
    got = flashspan.attention(*inputs, mask="causal", score="score + (q - k)", return_lse=True)
    q, k = grid(length, length)
    assert_same(inputs, got, lambda *exact: reference.attention(*exact, q >= k, lambda score, b, h, q, k: score + (q - k)),
                units=32, lse_units=2**14)
    padded = [torch.cat([tensor, torch.full_like(tensor[:, :1], 7).expand(-1, 128, -1, -1)], dim=1) for tensor in inputs]
    longer = flashspan.attention(*padded, mask=flashspan.Mask("(q >= k) & (k < length)", length=length), score="score + (q - k)")
    assert_close(longer[:, :length], got[0], torch.bfloat16, units=1)


@pytest.mark.parametrize("kv_len", [128, 129, 131, 136, 227])
def test_f010_one_query_and_keys_with_nan_behind_the_last(device, kv_len):
    query = torch.randn(2, 16, 1, 64, device=device).half()
    key, value = (gapped((2, 16, kv_len, 64), torch.float16, device) for _ in range(2))
    out = flashspan.attention(query, key, value, layout="bhsd")
    wanted, _ = reference.attention(*(tensor.transpose(1, 2).cpu() for tensor in (query, key, value)))
    assert_close(out.transpose(1, 2), wanted, torch.float16)


@pytest.mark.parametrize("starts_q, starts_k, heads, kv_heads, dim", [
    ([0, 0, 1, 1, 2], [0, 0, 3, 3, 8], 9, 3, 64), ([0, 0, 0, 0, 1], [0, 0, 0, 0, 1], 21, 7, 120)], ids=["some", "one"])
def test_f012_packed_sequences_of_no_token(device, starts_q, starts_k, heads, kv_heads, dim):
    inputs = leaves(device, (starts_q[-1], heads, dim), (starts_k[-1], kv_heads, dim), (starts_k[-1], kv_heads, dim))
    starts = [torch.tensor(values, dtype=torch.int32, device=device) for values in (starts_q, starts_k)]
    out = flash_attn.flash_attn_varlen_func(*inputs, *starts, 2, 5)

    def alone(query, key, value):
        parts = [reference.attention(query[None, q0:q1], key[None, k0:k1], value[None, k0:k1])[0][0]
                 for (q0, q1), (k0, k1) in zip(itertools.pairwise(starts_q), itertools.pairwise(starts_k)) if q1 > q0]
        return torch.cat(parts), None

    assert_same(inputs, (out, None), alone)


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("batch, q_len, kv_len", [(0, 5, 5), (2, 0, 5), (2, 5, 0)])
@pytest.mark.usefixtures("poisoned_results")
def test_f014_nothing_of_one_size(device, batch, q_len, kv_len, mask):
    shapes = (batch, q_len, 2, 16), (batch, kv_len, 2, 16), (batch, kv_len, 2, 16)
    inputs = [torch.randn(shape, device=device).half().requires_grad_() for shape in shapes]
    out, lse = flashspan.attention(*inputs, mask=mask, return_lse=True)
    assert out.shape == shapes[0] and lse.shape == (batch, 2, q_len)
    assert torch.all(out == 0) and torch.all(lse == -torch.inf)
    for gradient, tensor in zip(torch.autograd.grad(out.sum(), inputs), inputs):
        assert torch.equal(gradient, torch.zeros_like(tensor))


def test_f015_packed_sequences_of_one_key(device):
    starts_q, starts_k = [0, 76, 110, 256], [0, 1, 2, 3]
    inputs = [(3 * torch.randn(length, 1, 32)).half().to(device).requires_grad_() for length in (256, 3, 3)]
    starts = [torch.tensor(values, dtype=torch.int32, device=device) for values in (starts_q, starts_k)]
    out, lse, _ = flash_attn.flash_attn_varlen_func(*inputs, *starts, 146, 1, causal=True, return_attn_probs=True)
    last = [end - 1 for end in starts_q[1:]]
    others = [row for row in range(256) if row not in last]
    assert torch.equal(out[last], inputs[2]) and torch.all(out[others] == 0) and torch.all(lse[:, others] == -torch.inf)
    gradients = torch.autograd.grad(out, inputs, torch.ones_like(out))
    assert torch.all(gradients[0] == 0) and torch.all(gradients[1] == 0) and torch.all(gradients[2] == 1)


# -- strides and addresses


def test_f017_keys_that_are_a_part_of_others(device):
    query = torch.randn(1, 128, 2, 64, device=device).half()
    key, value = (torch.randn(1, 256, 2, 64, device=device).half().requires_grad_() for _ in range(2))
    for _ in range(2):
        whole = flashspan.attention(query, key, value)
        part = flashspan.attention(query, key[:, :-128], value[:, :-128])
        assert_close(whole, reference.attention(query.cpu(), key.cpu(), value.cpu())[0], torch.float16)
        for gradient, exact in zip(torch.autograd.grad(part.sum(), (key, value)), _gradients_of_part(query, key, value)):
            assert torch.all(gradient[:, -128:] == 0)
            assert_close(gradient, exact, torch.float16, units=32)


def _gradients_of_part(query, key, value):
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in (key, value)]
    out, _ = reference.attention(query.cpu(), *(tensor[:, :-128] for tensor in exact))
    return torch.autograd.grad(out.sum(), exact)


@pytest.mark.parametrize("permuted", ["out", "query", "key", "value"])
def test_f019_gradients_of_permuted_strides_have_the_same_bits(device, permuted):
    tensors = {name: torch.randn(2, 65, 3, 64).half().to(device) for name in ("out", "query", "key", "value")}
    views = dict(tensors)
    views[permuted] = tensors[permuted].permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert views[permuted].stride(-1) != 1

    def gradients(given):
        inputs = [given[name].requires_grad_() for name in ("query", "key", "value")]
        out = flashspan.attention(*inputs, mask="causal", deterministic=True)
        return torch.autograd.grad(out, inputs, given["out"])

    assert_same_bits(gradients(tensors), gradients(views))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_f020_tensors_that_start_anywhere(device, dtype):
    size = 2 * 64 * 4 * 64
    memory = torch.randn(size + 8, device=device).to(dtype)
    moved = [memory[start:start + size].view(2, 64, 4, 64) for start in (1, 2, 3)]
    for order in itertools.permutations(moved):
        out = flashspan.attention(*order, mask="causal")
        assert_close(out, flashspan.attention(*(tensor.clone() for tensor in order), mask="causal"), dtype, units=2)


def test_s05_positions_that_are_views(device):
    inputs = rows(device, 70, kv_len=90)
    q_pairs, k_pairs = (torch.randint(0, 100, (1, 2, length, 2), dtype=torch.int32, device=device) for length in (70, 90))
    views = masks.scfa_index(q_pairs[..., 1], k_pairs[..., 0])
    copies = masks.scfa_index(q_pairs[..., 1].contiguous(), k_pairs[..., 0].contiguous())
    assert torch.equal(flashspan.attention(*inputs, mask=views), flashspan.attention(*inputs, mask=copies))


# -- heads and head dims


@pytest.mark.parametrize("q_len", [1, 37])
def test_f022_a_mask_for_all_is_one_for_each(device, q_len):
    inputs = rows(device, q_len, heads=8, kv_heads=2, kv_len=200, batch=4)
    ranges = torch.tensor([10, 150]).expand(1, 1, q_len, 1, 2).int().to(device)
    forms = [ranges.expand(batch, heads, -1, -1, -1).contiguous() for batch, heads in ((1, 1), (4, 1), (1, 8), (4, 8))]
    with torch.no_grad():
        results = [flashspan.attention(*inputs, mask=masks.key_ranges(form)) for form in forms]
    for result in results[1:]:
        assert torch.equal(result, results[0])
    each = torch.randint(0, 201, (4, 8, q_len, 1, 2)).sort(dim=-1).values.int()
    k = torch.arange(200)
    compare(inputs, masks.key_ranges(each.to(device)), (k >= each[..., 0, :1]) & (k < each[..., 0, 1:]))


@pytest.mark.parametrize("group", [3, 5, 7, 12])
def test_f024_groups_of_any_size(device, group):
    q, k = grid(33, 90)
    compare(rows(device, 33, heads=2 * group, kv_heads=2, dim=64, kv_len=90), "causal", k <= q + 57)


@pytest.mark.parametrize("dim, dim_v, heads, kv_heads", [(64, 128, 8, 2), (128, 64, 6, 3), (192, 128, 4, 4), (72, 104, 2, 2)])
@pytest.mark.usefixtures("poisoned_results")
def test_f025_f029_f031_head_dims_of_keys_and_of_values(device, dim, dim_v, heads, kv_heads):
    inputs = leaves(device, (2, 37, heads, dim), (2, 54, kv_heads, dim), (2, 54, kv_heads, dim_v), dtype=torch.bfloat16)
    seen = torch.rand(37, 54) < 0.6
    compare(inputs, flashspan.Mask("seen[q, k] != 0", seen=seen.to(device)), seen)


# -- dtypes


@pytest.mark.parametrize("dtypes", [
    (torch.float32, torch.float32, torch.bfloat16), (torch.float16, torch.bfloat16, torch.float16), (torch.float64,) * 3,
    (torch.int8,) * 3], ids=str)
def test_f032_dtypes_that_do_not_go_together_are_refused_before_anything_is_compiled(device, dtypes, caplog):
    tensors = [torch.ones(1, 8, 1, 16, device=device).to(dtype) for dtype in dtypes]
    with caplog.at_level("DEBUG", logger="flashspan"), pytest.raises(flashspan.BadArgumentError, match="(query|key|value).*: got .*takes.*(f16|float16)"):
        flashspan.attention(*tensors, mask="(q * 3 - k) % 11 != 4")
    assert not [record for record in caplog.records if record.name == "flashspan"]


# -- gradients


@pytest.mark.parametrize("text", ["bias[h, q - k]", "score * 0 + bias[h, q - k]"])
def test_f033_a_score_without_the_product_gives_no_gradient_to_query_and_key(device, text):
    inputs = rows(device, 65)
    bias = torch.randn(2, 65, device=device).requires_grad_()
    out = flashspan.attention(*inputs, mask="causal", score=flashspan.Score(text, bias=bias))
    weights = torch.randn(1, 65, 2, 32).half()
    gradients = torch.autograd.grad(out, [*inputs, bias], weights.to(device))
    assert torch.all(gradients[0] == 0) and torch.all(gradients[1] == 0)
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in (*inputs, bias)]
    q, k = grid(65, 65)
    wanted, _ = reference.attention(*exact[:3], q >= k, lambda score, b, h, q, k: 0 * score + exact[3][h, (q - k).clamp(min=0)])
    for got, exactly in zip(gradients[2:], torch.autograd.grad(wanted, exact[2:], weights.double())):
        assert_close(got, exactly, torch.float16, units=64)


def test_f035_the_backward_walks_the_blocks_of_the_forward(device):
    """Blocks that are not symmetric, and of another size than the tiles of either direction."""
    inputs = rows(device, 300, dim=64)
    shown = torch.rand(1, 2, 7, 7) < 0.4
    counts = shown.sum(-1).int()
    indices = torch.argsort(shown.int(), dim=-1, descending=True, stable=True).int()
    dense = shown.repeat_interleave(48, 2).repeat_interleave(48, 3)[..., :300, :300]
    compare(inputs, masks.block_list(counts.to(device), indices.to(device), 48, 48), dense)


def test_f036_padding_inside_blocks_takes_no_part(device):
    sizes = torch.tensor([1, 64, 7, 33])
    inputs = rows(device, 256)
    k = torch.arange(256)
    visible = (k % 64 < sizes[k // 64]).expand(256, 256)
    with torch.no_grad():
        for tensor in inputs[1:]:
            tensor[:, ~visible[0].to(device)] = 1e4
    looked_up = sizes.int().to(device)
    mask = flashspan.Mask(lambda b, h, q, k: k % 64 < looked_up[k // 64])
    out = flashspan.attention(*inputs, mask=mask)
    gradients = torch.autograd.grad(out.float().square().sum(), inputs)
    for gradient in gradients[1:]:
        assert torch.all(gradient[:, ~visible[0].to(device)] == 0)
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in inputs]
    wanted, _ = reference.attention(*exact, visible)
    assert_close(out, wanted, torch.float16)
    for got, exactly in zip(gradients, torch.autograd.grad(wanted.square().sum(), exact)):
        assert_close(got, exactly, torch.float16, units=64)


@pytest.mark.parametrize("form", ["causal", "documents", "overlapping ranges"])
def test_f037_the_same_bits_every_time(device, form):
    inputs = rows(device, 200, dim=64)
    bounds = torch.sort(torch.randint(0, 201, (1, 1, 200, 2, 2)), dim=-1).values.int().to(device)
    mask = {"causal": masks.causal(), "documents": masks.causal_document((torch.arange(200) // 33).int().to(device)),
            "overlapping ranges": masks.key_ranges(bounds)}[form]
    gradient = torch.randn(1, 200, 2, 64).half().to(device)

    def once():
        out, lse = flashspan.attention(*inputs, mask=mask, return_lse=True, deterministic=True)
        return bits(out, lse, *torch.autograd.grad(out, inputs, gradient))

    first, taken = once(), []
    for run in range(6):
        taken.append(torch.randn(1000 * (run + 1), device=device))  # other addresses
        assert_same_bits(once(), first)


# -- NaN and infinity


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_f038_keys_behind_the_used_length_may_hold_anything(device, poison):
    used = torch.tensor([32, 64, 96, 48], device=device)
    query, key, value = rows(device, 1, kv_len=128, batch=4)
    unused = (torch.arange(128, device=device) >= used[:, None])[..., None, None]
    results = []
    for held in (0.0, poison):
        inputs = [query, *(torch.where(unused, held, tensor).detach().requires_grad_() for tensor in (key, value))]
        out, lse = flashspan.attention(*inputs, mask=flashspan.Mask("k < used[b]", used=used), return_lse=True, deterministic=True)
        gradients = torch.autograd.grad(out.sum(), inputs)
        assert all(torch.all(gradient[unused.expand_as(gradient)] == 0) for gradient in gradients[1:])
        results.append(bits(out, lse, *gradients))
    assert_same_bits(*results)


def test_f040_keys_outside_of_every_window_may_hold_nan(device):
    query, key, value = rows(device, 100, kv_len=300)
    results = []
    for held in (0.0, math.nan):
        inputs = [query, *(tensor.detach().clone().requires_grad_() for tensor in (key, value))]
        with torch.no_grad():
            inputs[1][:, :189] = inputs[2][:, :189] = held
        out = flashspan.attention(*inputs, mask=masks.causal_window(10), deterministic=True)
        results.append(bits(out, *torch.autograd.grad(out.sum(), inputs)))
    assert_same_bits(*results)


def test_f041_a_query_of_nan_spoils_its_own_row(device):
    query, key, value = (torch.randn(2, 16, 4, 16).half().to(device) for _ in range(3))
    wanted, wanted_lse = flashspan.attention(query, key, value, return_lse=True)
    query[0, 3, 1] = math.nan
    out, lse = flashspan.attention(query, key, value, return_lse=True)
    assert torch.isnan(out[0, 3, 1]).all() and torch.isnan(lse[0, 1, 3])
    others = torch.ones(2, 16, 4, dtype=torch.bool, device=device)
    others[0, 3, 1] = False
    assert torch.equal(out[others], wanted[others])
    assert torch.equal(lse.transpose(1, 2)[others], wanted_lse.transpose(1, 2)[others])


@pytest.mark.parametrize("sign", [-1, 1])
def test_f042_equal_logits_of_any_size_give_the_mean(device, sign):
    query = torch.full((1, 4, 1, 128), 43.75, device=device).bfloat16()
    key = sign * torch.full((1, 100, 1, 128), 43.75, device=device).bfloat16()  # a product of 245000
    value = torch.randn(1, 100, 1, 128, device=device).bfloat16()
    out, lse = flashspan.attention(query, key, value, return_lse=True)
    assert_close(out, value.double().mean(1, keepdim=True).expand_as(out), torch.bfloat16)
    wanted = sign * 245000 / 128**0.5 + math.log(100)
    assert torch.allclose(lse.double().cpu(), torch.tensor(wanted).double(), rtol=1e-6, atol=0.01)


@pytest.mark.parametrize("scale", [0.3, 1e-3])
def test_f044_ones_stay_ones_whatever_the_logits(place, scale):
    device, dtype = place
    query, key = (61 * torch.sign(torch.randn(1, 70, 2, 16, device=device)).to(dtype) for _ in range(2))  # up to 6e4
    key[:, 1] = key[:, 0]
    out, lse = flashspan.attention(query, key, torch.ones_like(key), scale=scale, return_lse=True)
    assert torch.all((out - 1).abs() <= max(2 * torch.finfo(dtype).eps, 70 * torch.finfo(torch.float32).eps))  # 70 sums
    largest = torch.einsum("bqhd,bkhd->bhqk", query.double().cpu(), key.double().cpu()).amax(-1) * scale
    assert torch.all(lse.double().cpu() >= largest * (1 - 1e-6) - 1e-3)


# -- windows


@pytest.mark.parametrize("left, wanted", [(3, [1, 2, 3, 4, 4, 4, 4, 4]), (4, [1, 2, 3, 4, 5, 5, 5, 5])])
def test_f045_a_window_has_its_left_keys_and_the_query_s_own(device, left, wanted):
    for attend in (attend_under(masks.causal_window(left)),
                   lambda *tensors: flash_attn.flash_attn_func(*tensors, window_size=(left, 0), return_attn_probs=True)):
        assert counts_of(device, 8, 8, attend).tolist() == [wanted]


def test_f045_a_window_of_1024_keys(device):
    counts = counts_of(device, 2048, 2048, attend_under(masks.causal_window(1024)))
    assert torch.equal(counts[0], torch.arange(2048).clamp(max=1024) + 1)


def test_f047_windows_without_end(device):
    far = 2**31 - 1
    attend = lambda *tensors: flash_attn.flash_attn_func(*tensors, window_size=(far, far), return_attn_probs=True)  # noqa: E731
    assert counts_of(device, 10, 4, attend).tolist() == [[4] * 10]


@pytest.mark.parametrize("left, right, wanted", [
    (0, 0, lambda i: 1), (None, 0, lambda i: i + 1), (0, None, lambda i: 16 - i)], ids=["itself", "before", "behind"])
def test_f048_windows_with_one_end_or_none(device, left, right, wanted):
    counts = counts_of(device, 16, 16, attend_under(masks.window(left, right)))
    assert counts.tolist() == [[wanted(i) for i in range(16)]]


# -- packing


class TestPacking:
    """Documents of 100, 56 and 100 tokens, whose ends are inside tiles."""

    DOC = torch.tensor([0] * 100 + [1] * 56 + [2] * 100)
    ENDS = torch.tensor([100] * 100 + [156] * 56 + [256] * 100)

    def forms(self, device):
        doc = self.DOC.int().to(device)
        start = torch.searchsorted(self.DOC, self.DOC)
        ranges = torch.stack([start, torch.arange(256) + 1], -1).reshape(1, 1, 256, 1, 2)
        blocks = torch.arange(4).expand(1, 1, 4, 4).int()
        return {
            "documents": masks.causal_document(doc),
            "FlashMask": masks.flashmask(self.ENDS.int().reshape(1, 1, 256, 1).to(device), causal=True),
            "ranges": masks.key_ranges(ranges.int().to(device)),
            "blocks": masks.block_list(torch.full((1, 1, 4), 4, dtype=torch.int32, device=device), blocks.contiguous().to(device),
                                       64, 64, predicate=masks.causal_document(doc)),
        }

    @pytest.mark.parametrize("form", ["documents", "FlashMask", "ranges", "blocks"])
    def test_f049_every_form_is_the_same_mask(self, device, form):
        q, k = grid(256, 256)
        compare(rows(device, 256, dim=64), self.forms(device)[form], (self.DOC[q] == self.DOC[k]) & (q >= k))

    @pytest.mark.parametrize("form", ["documents", "FlashMask", "ranges", "blocks", "packed sequences"])
    def test_f049_a_document_does_not_touch_another(self, device, form):
        starts = torch.tensor([0, 100, 156, 256], dtype=torch.int32, device=device)

        def attend(inputs):
            if form == "packed sequences":
                packed = (tensor[0] for tensor in inputs)
                return flash_attn.flash_attn_varlen_func(*packed, starts, starts, 100, 100, causal=True, deterministic=True)[None]
            return flashspan.attention(*inputs, mask=self.forms(device)[form], deterministic=True)

        original, weights = rows(device, 256, dim=64), torch.randn(1, 256, 2, 64, device=device).half()
        weights[:, :100] = 0
        results = []
        for poison in (None, 3.0, math.nan):
            inputs = [tensor.detach().clone().requires_grad_() for tensor in original]
            if poison is not None:
                with torch.no_grad():
                    inputs[1][:, :100] = inputs[2][:, :100] = poison
            out = attend(inputs)
            others = torch.autograd.grad(out[:, 100:], inputs, weights[:, 100:])
            results.append(bits(out[:, 100:], *(gradient[:, 100:] for gradient in others)))
        assert_same_bits(results[1], results[0])
        assert_same_bits(results[2], results[0])


# -- blocks


def test_f051_the_listed_blocks_alone_are_seen(device):
    inputs = leaves(device, *[(1, 2, 512, 64)] * 3)
    first = torch.zeros(1, 1, 4, 4, dtype=torch.int32, device=device)
    none, one = (torch.full((1, 1, 4), count, dtype=torch.int32, device=device) for count in (0, 1))
    block_mask = torch_flex.BlockMask.from_kv_blocks(none, first, one, first, BLOCK_SIZE=128, seq_lengths=(512, 512),
                                                     mask_mod=lambda b, h, q, k: q >= 0, compute_q_blocks=False)
    out = flex.flex_attention(*inputs, block_mask=block_mask)
    wanted, _ = reference.attention(*(tensor.detach().cpu().transpose(1, 2) for tensor in inputs), grid(512, 512)[1] < 128)
    assert_close(out.transpose(1, 2), wanted, torch.float16)


def test_f053_gradients_through_out_and_lse_together(device):
    inputs = leaves(device, (1, 2, 70, 32), (1, 2, 70, 32), (1, 2, 70, 32))
    block_mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 70, 70)
    out, lse = flex.flex_attention(*inputs, block_mask=block_mask, return_lse=True)
    got = torch.autograd.grad((out.double() * torch.exp(lse.double() / 4)[..., None]).sum(), inputs)
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in inputs]
    q, k = grid(70, 70)
    wanted, wanted_lse = reference.attention(*(tensor.transpose(1, 2) for tensor in exact), q >= k)
    loss = (wanted.transpose(1, 2) * torch.exp(wanted_lse / 4)[..., None]).sum()
    for mine, exactly in zip(got, torch.autograd.grad(loss, exact)):
        assert_close(mine, exactly, torch.float16, units=64)


def test_f054_a_part_of_the_queries_keeps_its_positions(device):
    query, key, value = (tensor.detach() for tensor in rows(device, 900, dim=64))
    doc = (torch.arange(900, device=device) // 250).int()
    whole = flashspan.attention(query, key, value, mask=masks.causal_document(doc))
    offset = torch.zeros((), dtype=torch.int32, device=device)
    mask = flashspan.Mask(lambda b, h, q, k: (q + offset >= k) & (doc[q + offset] == doc[k]))
    for start, length in ((0, 256), (512, 256), (700, 1), (768, 132)):
        offset.fill_(start)
        part = flashspan.attention(query[:, start:start + length], key, value, mask=mask)
        assert_close(part, whole[:, start:start + length], torch.float16, units=2)


@pytest.mark.parametrize("form", ["full and partial", "all partial", "backwards"])
def test_f056_causal_blocks_in_any_order(device, form):
    inputs = leaves(device, *[(1, 2, 512, 32)] * 3)
    blocks = torch.arange(4)
    if form == "full and partial":
        partial, full = (torch.ones(4), blocks[:, None].expand(4, 4)), (blocks, blocks.expand(4, 4))
    else:
        listed = blocks.expand(4, 4) if form == "all partial" else (blocks[:, None] - blocks).clamp(min=0)
        partial, full = (blocks + 1, listed), (torch.zeros(4), listed)
    lists = (tensor.int().reshape(1, 1, *tensor.shape).contiguous().to(device) for tensor in (*partial, *full))
    block_mask = torch_flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=128, mask_mod=lambda b, h, q, k: q >= k,
                                                     seq_lengths=(512, 512), compute_q_blocks=False)
    got = flex.flex_attention(*inputs, block_mask=block_mask, return_lse=True)
    q, k = grid(512, 512)

    def wanted(*exact):
        out, lse = reference.attention(*(tensor.transpose(1, 2) for tensor in exact), q >= k)
        return out.transpose(1, 2), lse

    assert_same(inputs, got, wanted, units=32)


@pytest.mark.parametrize("block", [16, 32, 48, 64, 96, 128, 256])
def test_f057_blocks_of_any_size(device, block):
    count = -(-300 // block)
    shown = torch.rand(count, count) < 0.5
    counts, order = shown.sum(-1).int(), torch.argsort(shown.int(), dim=-1, descending=True, stable=True).int()
    mask = masks.block_list(counts[None, None].to(device), order[None, None].to(device), block, block)
    dense = shown.repeat_interleave(block, 0).repeat_interleave(block, 1)[:300, :300]
    compare(rows(device, 300), mask, dense)


# -- indices


@pytest.mark.parametrize("strict, empty", [(True, [0, 1, 3, 6]), (False, [])])
def test_s01_strict_or_not_is_what_the_caller_says(device, strict, empty):
    bucket, place = (torch.tensor(values, dtype=torch.int32, device=device).reshape(1, 1, 7)
                     for values in ([0, 1, 0, 2, 1, 0, 3], range(7)))
    _, lse = flashspan.attention(*rows(device, 7, dim=16, heads=1, kv_heads=1), return_lse=True,
                                 mask=masks.scfa_hash(place, place, bucket, bucket, strict))
    assert torch.nonzero(torch.isneginf(lse[0, 0])).flatten().tolist() == empty


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "two runs"])
def test_s02_positions_in_any_order(device, order):
    k_idx = {"ascending": torch.arange(90), "descending": torch.arange(90).flip(0), "shuffled": torch.randperm(90),
             "two runs": torch.arange(90).roll(40)}[order]
    q_idx = torch.randperm(70)
    mask = masks.scfa_index(*(index.int().reshape(1, 1, -1).to(device) for index in (q_idx, k_idx)))
    compare(rows(device, 70, kv_len=90), mask, q_idx[:, None] >= k_idx[None, :])


@pytest.mark.parametrize("shape, axis, wanted", [((10, 15), 1, 20), ((20, 10), 1, 20), ((9, 20), 0, 10)], ids=str)
def test_f063_a_mask_tensor_that_is_too_short_is_refused_with_both_sizes(device, shape, axis, wanted):
    mask = flashspan.Mask("seen[q, k] != 0", seen=torch.ones(shape, dtype=torch.int32, device=device))
    with pytest.raises(flashspan.BadArgumentError, match=rf"seen.*axis {axis} is {shape[axis]}.*takes at least {wanted} "):
        flashspan.attention(*rows(device, 10, kv_len=20), mask=mask)


# -- callables


def test_f065_divisions_round_down_below_zero_as_above(device):
    predicates = [lambda b, h, q, k: (q - 150) // 4 == (k - 150) // 4, lambda b, h, q, k: (q - 150) % 4 == (k - 150) % 4,
                  lambda b, h, q, k: (q - k) % 3 == 2, lambda b, h, q, k: (q - k) // -3 == k // 4 - 20,
                  lambda b, h, q, k: (q - 150) >> 2 == (k - 150) >> 2, lambda b, h, q, k: (k - q) % -4 == -3]
    row = torch.zeros(1, 300, 1, 16, device=device).half()
    flashspan.prepare([dict(query=row, key=row, value=row, mask=flashspan.Mask(each)) for each in predicates], backward=False)
    for predicate in predicates:
        wanted = reference.dense_mask(predicate, 1, 1, 300, 300)[0, 0].sum(-1)
        assert wanted.sum() > 0
        assert torch.equal(counts_of(device, 300, 300, attend_under(flashspan.Mask(predicate)))[0], wanted)


def test_f067_a_step_of_zero_ends_no_process(device):
    """Division by zero gives 0 in the mask language, and so does its remainder."""
    step = torch.tensor([0, 3], dtype=torch.int32, device=device)
    counts = counts_of(device, 20, 20, attend_under(flashspan.Mask("(q - k) % step[b] == 0", step=step)), batch=2)
    assert counts[0].tolist() == [20] * 20
    assert counts[1].tolist() == [sum((q - k) % 3 == 0 for k in range(20)) for q in range(20)]
    position = torch.randperm(20)
    seen = position[:, None] >= position[None, :]
    there = position.int().to(device)
    assert torch.equal(counts_of(device, 20, 20, attend_under(flashspan.Mask(lambda b, h, q, k: there[k] <= there[q])))[0], seen.sum(-1))


# -- the logarithm of the sum


def test_f068_lse_is_natural_and_merges_halves(device):
    query, key, value = rows(device, 128, dim=64)
    zero = torch.zeros_like(query)
    with torch.no_grad():
        assert torch.allclose(flashspan.attention(zero, key, value, return_lse=True)[1].cpu(), torch.tensor(math.log(128)))
    whole, whole_lse = flashspan.attention(query, key, value, return_lse=True)
    halves = [flashspan.attention(query, key[:, part], value[:, part], return_lse=True) for part in (slice(0, 64), slice(64, 128))]
    lse = torch.logaddexp(halves[0][1], halves[1][1])
    merged = sum(out.float() * torch.exp(part - lse).transpose(1, 2)[..., None] for out, part in halves)
    assert_close(lse, whole_lse, torch.float32, units=64)
    assert_close(merged, whole, torch.float16, units=4)


# -- devices


def test_f084_a_tensor_s_device_is_where_its_call_runs(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    on_first = [torch.randn(1, 70, 2, 64, device="cuda:0").half() for _ in range(3)]
    wanted = flashspan.attention(*on_first, mask="causal")
    for _ in range(2):
        got = flashspan.attention(*(tensor.to("cuda:1") for tensor in on_first), mask="causal")
        assert got.device.index == 1 and torch.cuda.current_device() == 0
        assert torch.equal(got.cpu(), wanted.cpu())
    with pytest.raises(flashspan.BadArgumentError, match="key"):
        flashspan.attention(on_first[0], on_first[1].to("cuda:1"), on_first[2], mask="causal")


def test_f089_lengths_and_data_compile_nothing(device):
    doc = torch.zeros(200, dtype=torch.int32, device=device)

    def step(length):
        inputs = rows(device, length, dim=64)
        doc.copy_(torch.arange(200) // (length % 7 + 1))
        out = flashspan.attention(*inputs, mask=masks.causal_document(doc[:length]))
        return torch.autograd.grad(out.sum(), inputs)

    step(33)
    flashspan.freeze()
    try:
        for length in torch.randperm(200).add(1)[:40].tolist():
            step(length)
    finally:
        flashspan.freeze("compile")
