"""flashspan.attention gives the values of dense attention in fp64, for every kind of tensor."""

import numpy
import pytest
import torch

import flashspan
import reference
from conftest import assert_close, gapped


def compare(query, key, value, mask, mask_mod, **options):
    """Attention under `mask` against the reference under `mask_mod`."""
    batch, q_len, heads, _ = query.shape
    visible = None if mask_mod is None else reference.dense_mask(mask_mod, batch, heads, q_len, key.shape[1])
    out, lse = flashspan.attention(query, key, value, mask=mask, return_lse=True, **options)
    wanted = reference.attention(query.cpu(), key.cpu(), value.cpu(), visible, scale=options.get("scale"))
    assert out.dtype == query.dtype and out.device == query.device and lse.dtype == torch.float32
    assert_close(out, wanted[0], query.dtype)
    assert_close(lse, wanted[1], torch.float32, units=40 if query.dtype != torch.float32 else 8)


@pytest.mark.usefixtures("poisoned_results")
class TestValues:
    @pytest.mark.parametrize("heads, kv_heads", [(2, 2), (6, 2)])
    @pytest.mark.parametrize("q_len, kv_len", [(1, 1), (17, 17), (130, 97), (64, 200)])
    def test_of_a_causal_mask(self, place, q_len, kv_len, heads, kv_heads):
        device, dtype = place
        query = gapped((2, q_len, heads, 32), dtype, device)
        key, value = gapped((2, kv_len, kv_heads, 32), dtype, device), gapped((2, kv_len, kv_heads, 48), dtype, device)
        compare(query, key, value, "causal", lambda b, h, q, k: k <= q + kv_len - q_len)

    def test_without_a_mask(self, place):
        device, dtype = place
        query, key, value = (gapped((1, 40, 2, 16), dtype, device) for _ in range(3))
        compare(query, key, value, None, None)

    def test_with_a_scale(self, place):
        device, dtype = place
        query, key, value = (gapped((1, 40, 2, 16), dtype, device) for _ in range(3))
        compare(query, key, value, "q >= k", lambda b, h, q, k: q >= k, scale=0.5)

    def test_of_rows_that_see_nothing(self, place):
        device, dtype = place
        query, key, value = (gapped((1, 40, 1, 16), dtype, device) for _ in range(3))
        compare(query, key, value, "(q % 3 != 0) & (q >= k)", lambda b, h, q, k: (q % 3 != 0) & (q >= k))

    def test_where_hidden_keys_hold_nan(self, place):
        device, dtype = place
        query, key, value = (gapped((1, 70, 2, 16), dtype, device) for _ in range(3))
        key[:, 5::7], value[:, 5::7] = float("nan"), float("inf")
        out = flashspan.attention(query, key, value, mask="k % 7 != 5")
        kept = [index for index in range(70) if index % 7 != 5]
        assert_close(out, reference.attention(query.cpu(), key.cpu()[:, kept], value.cpu()[:, kept])[0], dtype)


def test_a_visible_nan_reaches_the_result(device):
    query, key, value = (torch.randn(1, 20, 1, 16, device=device).half() for _ in range(3))
    value[0, 3] = float("nan")
    out = flashspan.attention(query, key, value, mask="q >= k")
    assert torch.isnan(out[0, 3:]).all() and not torch.isnan(out[0, :3]).any()


@pytest.mark.parametrize("q_len, kv_len", [(0, 5), (5, 0), (0, 0)])
def test_lengths_of_zero(device, q_len, kv_len):
    query = torch.randn(2, q_len, 2, 16, device=device).half()
    key = torch.randn(2, kv_len, 2, 16, device=device).half()
    out, lse = flashspan.attention(query, key, key, return_lse=True)
    assert out.shape == query.shape and torch.equal(out, torch.zeros_like(out))
    assert lse.shape == (2, 2, q_len) and torch.isneginf(lse).all()


def test_layouts_mean_the_same_tensors(place):
    device, dtype = place
    query, key, value = (torch.randn(2, 3, 50, 16, device=device).to(dtype) for _ in range(3))
    heads_first = flashspan.attention(query, key, value, mask="q >= k", layout="bhsd")
    swapped = (tensor.transpose(1, 2) for tensor in (query, key, value))
    rows_first = flashspan.attention(*swapped, mask="q >= k", layout="bshd")
    assert torch.equal(heads_first, rows_first.transpose(1, 2))
    assert heads_first.is_contiguous() and rows_first.is_contiguous()


def test_views_of_one_packed_projection(place):
    device, dtype = place
    packed = torch.randn(2, 33, 3, 2, 16, device=device).to(dtype)
    compare(*packed.unbind(2), "q >= k", lambda b, h, q, k: q >= k)


def test_a_last_axis_that_is_not_contiguous(place):
    device, dtype = place
    query, key, value = (torch.randn(1, 2, 16, 33, device=device).to(dtype).permute(0, 3, 1, 2) for _ in range(3))
    compare(query, key, value, "q >= k", lambda b, h, q, k: q >= k)


def test_rows_that_start_anywhere(place):
    """Two views of equal strides, one aligned and one not, in either order."""
    device, dtype = place
    memory = torch.randn(1, 40, 2, 80, device=device).to(dtype)
    for starts in ((0, 1), (3, 8)):
        for start in starts:
            view = memory[..., start:start + 64]
            compare(view, view, view, "q >= k", lambda b, h, q, k: q >= k)


def test_a_key_that_is_shared_by_expansion(device):
    query = torch.randn(3, 20, 2, 16, device=device).half()
    key = torch.randn(1, 20, 1, 16, device=device).half().expand(3, 20, 2, 16)
    compare(query, key, key, "q >= k", lambda b, h, q, k: q >= k)


def test_a_sink_takes_part_of_the_weight(place):
    device, dtype = place
    query, key, value = (gapped((2, 30, 3, 16), dtype, device) for _ in range(3))
    sink = torch.tensor([0.5, -float("inf"), 2.0], device=device)
    out, lse = flashspan.attention(query, key, value, mask="q > k", sink=sink, return_lse=True)
    visible = reference.dense_mask(lambda b, h, q, k: q > k, 2, 3, 30, 30)
    wanted = reference.attention(query.cpu(), key.cpu(), value.cpu(), visible, sink=sink.cpu())
    assert_close(out, wanted[0], dtype)
    assert_close(lse, wanted[1], torch.float32, units=40 if dtype != torch.float32 else 8)


class TestNumpy:
    @pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
    def test_arrays_give_arrays(self, name):
        ml_dtypes = pytest.importorskip("ml_dtypes")

        kind = ml_dtypes.bfloat16 if name == "bfloat16" else numpy.dtype(name)
        arrays = [torch.randn(2, 19, 2, 16).numpy().astype(kind) for _ in range(3)]
        doc = numpy.arange(19) // 7
        out, lse = flashspan.attention(*arrays, mask=flashspan.Mask("doc[q] == doc[k]", doc=doc), return_lse=True)
        assert isinstance(out, numpy.ndarray) and out.dtype == kind and lse.dtype == numpy.float32
        tensors = [torch.from_numpy(array.astype(numpy.float32)) for array in arrays]
        visible = reference.dense_mask(lambda b, h, q, k: q // 7 == k // 7, 2, 2, 19, 19)
        wanted, wanted_lse = reference.attention(*tensors, visible)
        assert_close(torch.from_numpy(out.astype(numpy.float32)), wanted, getattr(torch, name))
        assert_close(torch.from_numpy(lse), wanted_lse, torch.float32, units=40)

    def test_arrays_of_any_strides(self):
        arrays = [numpy.random.default_rng(1).standard_normal((1, 2, 19, 32), numpy.float32)[..., ::2] for _ in range(3)]
        rows_first = [array.transpose(0, 2, 1, 3) for array in arrays]
        wanted = flashspan.attention(*(numpy.ascontiguousarray(array) for array in rows_first), mask="q >= k")
        assert numpy.array_equal(flashspan.attention(*rows_first, mask="q >= k"), wanted)

    def test_arrays_that_run_backwards_and_arrays_at_any_byte(self):
        def moved(array):
            memory = numpy.zeros(array.nbytes + 1, numpy.int8)
            placed = memory[1:].view(array.dtype).reshape(array.shape)
            placed[...] = array
            return placed

        query = numpy.random.default_rng(1).standard_normal((1, 12, 2, 16), numpy.float32)
        doc = numpy.repeat(numpy.arange(3, dtype=numpy.int32), 4)[::-1]
        wanted = flashspan.attention(query[:, ::-1].copy(), query, query, mask="q // 4 == k // 4")
        for same in (query, moved(query)):
            for mask in (flashspan.masks.document(doc), flashspan.Mask("doc[q] == doc[k]", doc=moved(doc))):
                assert numpy.array_equal(flashspan.attention(same[:, ::-1], same, same, mask=mask), wanted)

    def test_a_sink_and_a_score(self):
        query = numpy.random.default_rng(1).standard_normal((1, 12, 2, 16), numpy.float32)
        got = flashspan.attention(query, query, query, score="score - abs(q - k)", sink=[0.0, 1.0])
        tensor = torch.from_numpy(query)
        wanted, _ = reference.attention(tensor, tensor, tensor, sink=torch.tensor([0.0, 1.0]),
                                        score_mod=lambda score, b, h, q, k: score - (q - k).abs())
        assert_close(torch.from_numpy(got), wanted, torch.float32)


class Speaker:
    """An array of another library: it speaks DLPack, and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class NamespaceSpeaker(Speaker):
    def __array_namespace__(self):
        return type("Namespace", (), {"from_dlpack": staticmethod(NamespaceSpeaker)})


def test_what_speaks_dlpack_is_read_in_place(device):
    query = torch.randn(1, 12, 2, 16, device=device).half()
    wanted = flashspan.attention(query, query, query, mask="q >= k")
    got = flashspan.attention(*[Speaker(query)] * 3, mask="q >= k")
    assert isinstance(got, torch.Tensor) and torch.equal(got, wanted)


def test_results_for_a_library_that_takes_dlpack_are_its_own_kind(device):
    query = torch.randn(1, 12, 2, 16, device=device).half()
    out, lse = flashspan.attention(*[NamespaceSpeaker(query)] * 3, return_lse=True)
    assert isinstance(out, NamespaceSpeaker) and isinstance(lse, NamespaceSpeaker)
    assert torch.equal(out.tensor, flashspan.attention(query, query, query))


def test_work_goes_to_the_current_stream(cuda):
    query = torch.randn(1, 256, 2, 64, device=cuda).half()
    wanted = flashspan.attention(query, query, query)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = torch.zeros_like(query)
        late.copy_(query)  # behind the sleep: read too early, it would be zeros
        got = flashspan.attention(late, late, late)
    stream.synchronize()
    assert torch.equal(got, wanted)


class TestRefusals:
    def refused(self, kind, match, *tensors, **options):
        with pytest.raises(kind, match=match) as caught:
            flashspan.attention(*tensors, **options)
        assert isinstance(caught.value, flashspan.FlashspanError)

    def test_name_the_argument(self):
        query = torch.randn(1, 8, 2, 16)
        self.refused(ValueError, "layout.*'sbhd'", query, query, query, layout="sbhd")
        self.refused(ValueError, "key.*rank 3", query, query[0], query)
        self.refused(ValueError, "mask.*int", query, query, query, mask=3)
        self.refused(ValueError, "query.*float64", query.double(), query.double(), query.double())
        self.refused(ValueError, "float16, bfloat16$", query.int(), query, query)
        self.refused(ValueError, "key.*list", query, [1], query)
        self.refused(ValueError, "sink.*list", query, query, query, sink=[0.0, 0.0])
        self.refused(ValueError, "scale.*str", query, query, query, scale="1")
        self.refused(ValueError, "scale.*str", *[query.numpy()] * 3, scale="1")
        self.refused(ValueError, "query.*list", [1], query, query)
        self.refused(ValueError, "query_heads|heads", query[:, :, :1], query, query)

    def test_a_scale_that_may_change(self, device):
        """Calls are remembered by their scale: another value in the same tensor would not be seen."""
        query = torch.randn(1, 8, 2, 16, device=device).half()
        self.refused(ValueError, "scale.*Tensor.*Score", query, query, query, scale=torch.tensor(0.5))
        prepared = dict(query=query, key=query, value=query, scale=torch.tensor(0.5))
        with pytest.raises(flashspan.BadArgumentError, match="scale"):
            flashspan.prepare([prepared])

    def test_a_mask_on_another_device(self, cuda):
        query = torch.randn(1, 8, 2, 16, device=cuda).half()
        mask = flashspan.masks.document(torch.zeros(8, dtype=torch.int32))
        self.refused(ValueError, r"mask\.to\('cuda", query, query, query, mask=mask)
        flashspan.attention(query, query, query, mask=mask.to(cuda))

    def test_a_document_tensor_that_is_too_short(self):
        query = torch.randn(1, 8, 2, 16)
        self.refused(ValueError, "doc", query, query, query, mask=flashspan.masks.document([0] * 7))
