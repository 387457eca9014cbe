"""Every builder of flashspan.masks, and masks of text, against a predicate over plain indices."""

import numpy
import pytest
import torch

import flashspan
import reference
from conftest import assert_close
from flashspan import Mask, masks

DOC = torch.tensor([0] * 9 + [1] * 4 + [2] * 11)
PREFIX_END = torch.tensor([3] * 9 + [9] * 4 + [20] * 11)
ANSWER = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2] + [0, 1, 1, 2] + [0] * 5 + [1] * 6)
S = 24


def visible(mask, q_len=S, kv_len=S, heads=1, head=0, batch=1, batch_index=0):
    """What the library says is visible, bool [q_len, kv_len]."""
    tiles = flashspan.explanation.tile_map(mask, q_len, kv_len, block_m=1, block_n=1, heads=heads, head_index=head,
                                           batch=batch, batch_index=batch_index)
    return torch.tensor([kind == 1 for kind in tiles.kinds]).reshape(q_len, kv_len)


def wanted(predicate, q_len=S, kv_len=S):
    return predicate(torch.arange(q_len)[:, None], torch.arange(kv_len)[None, :]).expand(q_len, kv_len)


NAMED = {
    "full": (masks.full(), lambda q, k: torch.tensor(True)),
    "causal": (masks.causal(), lambda q, k: k <= q),
    "window": (masks.window(3, 2), lambda q, k: (k >= q - 3) & (k <= q + 2)),
    "window_open_to_the_left": (masks.window(right=2), lambda q, k: k <= q + 2),
    "causal_window": (masks.causal_window(4), lambda q, k: (k <= q) & (k >= q - 4)),
    "sink_window": (masks.sink_window(4, 2), lambda q, k: (k <= q) & ((k >= q - 4) | (k < 2))),
    "global_window": (masks.global_window(2, 1, 3),
                      lambda q, k: ((k >= q - 2) & (k <= q + 1)) | (k < 3) | (q < 3)),
    "dilated_window": (masks.dilated_window(9, 3), lambda q, k: (k <= q) & (k >= q - 9) & ((q - k) % 3 == 0)),
    "chunked": (masks.chunked(5), lambda q, k: (k <= q) & (q // 5 == k // 5)),
    "prefix_lm": (masks.prefix_lm(6), lambda q, k: (k <= q) | (k < 6)),
    "document": (masks.document(DOC), lambda q, k: DOC[q] == DOC[k]),
    "causal_document": (masks.causal_document(DOC), lambda q, k: (DOC[q] == DOC[k]) & (k <= q)),
    "prefix_lm_document": (masks.prefix_lm_document(DOC, PREFIX_END),
                           lambda q, k: (DOC[q] == DOC[k]) & ((k <= q) | (k < PREFIX_END[q]))),
    "shared_question": (masks.shared_question(DOC, ANSWER),
                        lambda q, k: (DOC[q] == DOC[k]) & (k <= q) & ((ANSWER[k] == 0) | (ANSWER[q] == ANSWER[k]))),
    "causal_blockwise": (masks.causal_blockwise(DOC, 2),
                         lambda q, k: (k <= q) & ((DOC[q] == DOC[k]) | (DOC[q] == 2))),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_masks_show_what_they_say(name):
    mask, predicate = NAMED[name]
    assert torch.equal(visible(mask), wanted(predicate))


def test_every_name_of_the_catalogue_has_a_builder():
    from flashspan import _core

    for line in _core.named_mask_help().splitlines():
        assert callable(getattr(masks, line.split(";")[0].split("(")[0]))


def test_the_last_query_stands_beside_the_last_key():
    assert torch.equal(visible(masks.causal(), 4, 10), wanted(lambda q, k: k <= q + 6, 4, 10))
    assert torch.equal(visible(masks.causal(top_left=True), 4, 10), wanted(lambda q, k: k <= q, 4, 10))


class TestIndexForms:
    def test_flashmask(self):
        starts = torch.randint(0, S + 1, (1, 2, S, 1))
        for head in range(2):
            hidden = torch.arange(S)[:, None] >= starts[0, head, :, 0]
            assert torch.equal(visible(masks.flashmask(starts, causal=True), heads=2, head=head),
                               wanted(lambda q, k: k <= q) & ~hidden)

    def test_flashmask_of_four_bounds(self):
        bounds = torch.sort(torch.randint(0, S + 1, (1, 1, S, 4)), dim=-1).values
        lower_start, lower_end, upper_start, upper_end = bounds[0, 0].unbind(-1)
        q = torch.arange(S)[:, None]
        hidden = ((q >= lower_start) & (q < lower_end)) | ((q >= upper_start) & (q < upper_end))
        assert torch.equal(visible(masks.flashmask(bounds)), ~hidden)

    def test_key_ranges(self):
        ranges = torch.sort(torch.randint(0, S + 1, (1, 1, S, 3, 2)), dim=-1).values
        k = torch.arange(S)
        inside = ((k >= ranges[0, 0, :, :, :1]) & (k < ranges[0, 0, :, :, 1:])).any(1)
        assert torch.equal(visible(masks.key_ranges(ranges)), inside)
        offsets = (torch.arange(S + 1) * 3).reshape(1, 1, S + 1)
        assert torch.equal(visible(masks.key_ranges(ranges.reshape(-1, 2), offsets)), inside)

    def test_slices(self):
        mask = masks.slices([[0, 8], [8, 20], [10, 24]], [[0, 10], [4, 16], [12, 24]], [0, 1, 2])
        def predicate(q, k):
            first = (q < 8) & (k < 10)
            second = (q >= 8) & (q < 20) & (k >= 4) & (k < 16) & (k - 4 <= q - 8)
            third = (q >= 10) & (k >= 12) & (k - 12 >= q - 10)
            return first | second | third
        assert torch.equal(visible(mask), wanted(predicate))

    @pytest.mark.parametrize("strict", [False, True])
    def test_scfa(self, strict):
        q_idx, k_idx = torch.randint(-1, 40, (2, 1, 1, S))
        q_hash, k_hash = torch.randint(0, 3, (2, 1, 1, S))
        q, k = q_idx[0, 0, :, None], k_idx[0, 0, None, :]
        seen = (q >= 0) & (k >= 0) & (q > k if strict else q >= k)
        assert torch.equal(visible(masks.scfa_index(q_idx, k_idx, strict)), seen)
        same = q_hash[0, 0, :, None] == k_hash[0, 0, None, :]
        assert torch.equal(visible(masks.scfa_hash(q_idx, k_idx, q_hash, k_hash, strict)), seen & same)

    def test_block_list(self):
        counts, indices = torch.tensor([[[2, 0, 1]]]), torch.tensor([[[[0, 2], [1, 1], [1, 9]]]])
        shown = torch.zeros(3, 3, dtype=torch.bool)
        shown[0, 0] = shown[0, 2] = shown[2, 1] = True
        dense = shown.repeat_interleave(8, 0).repeat_interleave(8, 1)
        assert torch.equal(visible(masks.block_list(counts, indices, 8, 8)), dense)
        inside = masks.block_list(counts, indices, 8, 8, predicate=Mask("doc[q] == doc[k]", doc=DOC))
        assert torch.equal(visible(inside), dense & wanted(lambda q, k: DOC[q] == DOC[k]))

    def test_in_a_call(self, device):
        """Their sizes are those of the call, and int64 is what people have."""
        starts = torch.randint(0, S + 1, (2, 1, S, 1), device=device)
        mask = masks.flashmask(starts, causal=True) & Mask("k != 3")
        query = torch.randn(2, S, 4, 16, device=device).half()
        key = torch.randn(2, S, 2, 16, device=device).half()
        q, k = torch.arange(S)[:, None], torch.arange(S)[None, :]
        dense = (k <= q) & (k != 3) & ~(q >= starts.cpu()[:, 0, None, :, 0])
        wanted_out, _ = reference.attention(query.cpu(), key.cpu(), key.cpu(), dense[:, None])
        assert_close(flashspan.attention(query, key, key, mask=mask), wanted_out, torch.float16)


class TestCombinations:
    def test_and_or_not(self):
        left, right = Mask("doc[q] == doc[k]", doc=DOC), Mask("doc[q] <= k", doc=PREFIX_END)
        a, b = wanted(lambda q, k: DOC[q] == DOC[k]), wanted(lambda q, k: PREFIX_END[q] <= k)
        assert torch.equal(visible(left & right), a & b)
        assert torch.equal(visible(left | ~right), a | ~b)
        assert torch.equal(visible(~(left & ~masks.causal()) | right), ~(a & ~wanted(lambda q, k: k <= q)) | b)

    def test_only_of_masks(self):
        with pytest.raises(TypeError):
            masks.causal() & True

    @pytest.mark.parametrize("misused", [lambda a, b: a and b, lambda a, b: a or b, lambda a, b: not a], ids=["and", "or", "not"])
    def test_are_not_made_by_words_that_would_drop_one(self, misused):
        with pytest.raises(ValueError, match="&, .*~ of masks"):
            misused(masks.causal(), masks.window(left=3))


class TestData:
    def test_numbers_are_values_of_the_call(self):
        assert torch.equal(visible(Mask("q - k < width", width=5)), wanted(lambda q, k: q - k < 5))
        assert torch.equal(visible(Mask("q * slope > k", slope=0.5)), wanted(lambda q, k: q * 0.5 > k))
        assert torch.equal(visible(Mask("k < width", width=True)), wanted(lambda q, k: k < 1))
        assert torch.equal(visible(Mask("k < width", width=numpy.int64(4))), wanted(lambda q, k: k < 4))

    def test_new_numbers_compile_nothing(self, device):
        query = torch.randn(1, 64, 1, 16, device=device).half()
        flashspan.attention(query, query, query, mask=Mask("q - k < width * 3", width=5))
        for width in (1, 7, 1000):
            call = dict(query=query, key=query, value=query, mask=Mask("q - k < width * 3", width=width))
            assert flashspan.prepare([call], backward=False)[0]["outcome"] == "loaded"

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
    def test_integers_of_every_width(self, dtype):
        flags = (torch.arange(S) % 3 == 1).to(dtype)
        assert torch.equal(visible(Mask("flags[k] == 1", flags=flags)), wanted(lambda q, k: flags[k] == 1))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
    def test_reals_of_every_width(self, dtype):
        limits = (torch.arange(S) / 2).to(dtype)
        assert torch.equal(visible(Mask("k <= limits[q]", limits=limits)), wanted(lambda q, k: k <= limits[q]))

    def test_integers_that_do_not_fit_are_refused(self):
        with pytest.raises(ValueError, match="32 bits"):
            visible(Mask("doc[q] == k", doc=torch.full((S,), 2**40)))

    def test_tensors_are_kept_alive(self):
        import gc

        mask = Mask("doc[q] == doc[k]", doc=DOC.int().clone())
        gc.collect()
        torch.zeros(S, dtype=torch.int32), torch.zeros(S, dtype=torch.int32)
        assert torch.equal(visible(mask), wanted(lambda q, k: DOC[q] == DOC[k]))

    def test_values_may_change(self, device):
        doc = DOC.int().to(device)
        mask = masks.document(doc)
        query = torch.randn(1, S, 1, 16, device=device).half()
        flashspan.attention(query, query, query, mask=mask)
        doc.copy_(torch.arange(S) // 5)
        dense = wanted(lambda q, k: q // 5 == k // 5)
        wanted_out, _ = reference.attention(query.cpu(), query.cpu(), query.cpu(), dense)
        assert_close(flashspan.attention(query, query, query, mask=mask), wanted_out, torch.float16)

    def test_other_tensors_at_the_same_place_are_other_tensors(self):
        """What is remembered of a call does not outlive what it was made from."""
        query = torch.randn(1, S, 1, 16)
        for step in range(1, 6):
            doc = (torch.arange(S) // step).int()
            out = flashspan.attention(query, query, query, mask=masks.document(doc))
            dense = wanted(lambda q, k: q // step == k // step)
            assert_close(out, reference.attention(query, query, query, dense)[0], torch.float32)
            del doc, out

    @pytest.mark.parametrize("text, data, match", [
        ("q >= ", {}, "mask"),
        ("q >= k & doc[q] == doc[k]", {"doc": DOC}, "\\^"),
        ("dok[q] == 1", {"doc": DOC}, "did you mean 'doc'"),
        ("q >= k", {"doc": DOC}, "doc"),
        ("doc[q] == 1", {"doc": "text"}, "doc"),
        ("doc[q] == 1", {"doc": torch.zeros(S, dtype=torch.complex64)}, "complex64"),
        ("score > 1", {}, "score"),
    ])
    def test_errors_are_said_where_the_mask_is_made(self, text, data, match):
        with pytest.raises(ValueError, match=match) as caught:
            Mask(text, **data)
        assert isinstance(caught.value, flashspan.FlashspanError)

    def test_a_text_is_read_once(self):
        from flashspan.mask import as_mask

        assert as_mask("(q >= k) & (q - k < 7)") is as_mask("(q >= k) & (q - k < 7)")
        for _ in range(2):
            with pytest.raises(flashspan.BadExpressionError):
                as_mask("q >=")

    def test_a_mask_prints_what_it_is(self):
        assert repr(Mask("q - k < w", w=3) & ~masks.causal()) == "Mask(('q - k < w', w=3) & (~('causal(top_left=0)')))"
