"""Masks and scores from Python callables mean what the callables mean, and what cannot be traced is refused by its line."""

import inspect
import math
import re
import subprocess
import sys
import textwrap

import numpy
import pytest
import torch

import attention_gym
import flashspan
import reference
from conftest import assert_close
from flashspan import Mask, Score
from test_masks import visible, wanted

S = 24
DOC = torch.arange(S) // 7


@pytest.mark.parametrize("name, q_len, kv_len, heads, mask_mod", attention_gym.MASKS, ids=lambda value: value if isinstance(value, str) else "")
class TestAttentionGym:
    def test_mask_shows_what_the_callable_says(self, name, q_len, kv_len, heads, mask_mod):
        mask = Mask(mask_mod)
        dense = reference.dense_mask(mask_mod, 1, heads, q_len, kv_len)
        for head in range(heads):
            assert torch.equal(visible(mask, q_len, kv_len, heads, head), dense[0, head])

    def test_attention_under_it_and_its_gradients(self, name, q_len, kv_len, heads, mask_mod, device):
        query = torch.randn(1, q_len, heads, 64, device=device).half().requires_grad_()
        key, value = (torch.randn(1, kv_len, heads, 64, device=device).half().requires_grad_() for _ in range(2))
        out = flashspan.attention(query, key, value, mask=Mask(mask_mod).to(device))
        exact = [tensor.detach().cpu().double().requires_grad_() for tensor in (query, key, value)]
        dense = reference.dense_mask(mask_mod, 1, heads, q_len, kv_len)
        wanted_out, _ = reference.attention(*exact, dense)
        assert_close(out, wanted_out, torch.float16)
        gradient = torch.randn(out.shape).half()
        ours = torch.autograd.grad(out, (query, key, value), gradient.to(device))
        for got, exactly in zip(ours, torch.autograd.grad(wanted_out, exact, gradient.double())):
            assert_close(got, exactly, torch.float16, units=16)


@pytest.mark.parametrize("name, length, heads, score_mod", attention_gym.SCORES, ids=lambda value: value if isinstance(value, str) else "")
def test_scores_of_attention_gym(name, length, heads, score_mod, device):
    dtype = torch.float32 if device == "cpu" else torch.float16
    tensors = [torch.randn(1, length, heads, 16).to(dtype) for _ in range(3)]
    exact = [tensor.double().requires_grad_() for tensor in tensors]
    tensors = [tensor.to(device).requires_grad_() for tensor in tensors]
    out, lse = flashspan.attention(*tensors, score=Score(score_mod).to(device), return_lse=True)
    wanted_out, wanted_lse = reference.attention(*exact, score_mod=score_mod)
    assert_close(out, wanted_out, dtype)
    assert_close(lse, wanted_lse, torch.float32, units=40)
    gradient = torch.randn(out.shape).to(dtype)
    ours = torch.autograd.grad(out, tensors, gradient.to(device))
    for got, exactly in zip(ours, torch.autograd.grad(wanted_out, exact, gradient.double())):
        assert_close(got, exactly, dtype, units=32)


class TestCapturedTensors:
    def test_are_looked_up_where_they_are(self):
        mask = Mask(lambda b, h, q, k: DOC[q] == DOC[k])
        assert len(mask.tensors) == 1 and mask.tensors[0] is DOC
        assert repr(mask) == "Mask('DOC[q] == DOC[k]', DOC)"

    def test_may_change_their_values(self):
        doc = torch.zeros(S, dtype=torch.int32)
        mask = Mask(lambda b, h, q, k: doc[q] == doc[k])
        doc.copy_(torch.arange(S) // 3)
        assert torch.equal(visible(mask), wanted(lambda q, k: q // 3 == k // 3))

    def test_of_no_axis_are_numbers_that_may_change(self):
        width = torch.tensor(3)
        mask = Mask(lambda b, h, q, k: (q - k).abs() < width)
        assert torch.equal(visible(mask), wanted(lambda q, k: (q - k).abs() < 3))
        width.fill_(6)
        assert torch.equal(visible(mask), wanted(lambda q, k: (q - k).abs() < 6))

    def test_of_one_name_in_two_functions(self):
        def inner(table):
            return lambda q: table[q]

        first, second = inner(torch.arange(S) % 5), inner(torch.arange(S) % 3)
        mask = Mask(lambda b, h, q, k: first(q) == second(k))
        assert torch.equal(visible(mask), wanted(lambda q, k: q % 5 == k % 3))

    def test_that_the_result_makes_no_use_of_are_left_out(self):
        unused = torch.arange(S)

        def mask_mod(b, h, q, k):
            unused[q] + 1
            return q >= k

        assert Mask(mask_mod).tensors == ()

    def test_as_operands_on_the_left(self):
        two = torch.tensor(2)
        mask = Mask(lambda b, h, q, k: (two * q > k) & (two < k) & (two + 1 != q) & ((two - q) % 2 == 0))
        assert torch.equal(visible(mask), wanted(lambda q, k: (2 * q > k) & (2 < k) & (q != 3) & ((2 - q) % 2 == 0)))

    def test_with_one_index_after_another(self):
        table = torch.randint(0, 3, (2, S, S))
        mask = Mask(lambda b, h, q, k: table[h][q][k] == 1)
        for head in range(2):
            assert torch.equal(visible(mask, heads=2, head=head), table[head] == 1)

    def test_with_an_index_from_the_end(self):
        table = torch.randint(0, 2, (S, 3))
        assert torch.equal(visible(Mask(lambda b, h, q, k: table[q, -1] == 1)), wanted(lambda q, k: table[q, 2] == 1))

    def test_reduced_along_a_row(self):
        table = torch.randint(0, S, (S, 4))
        none = Mask(lambda b, h, q, k: (table[q] != k).all())
        assert torch.equal(visible(none), (table[:, None] != torch.arange(S)[None, :, None]).all(-1))
        two = Mask(lambda b, h, q, k: (table[q] == k).any() | torch.any(table[k] == q))
        some = (table[:, None] == torch.arange(S)[None, :, None]).any(-1)
        assert torch.equal(visible(two), some | some.T)


class TestData:
    def test_arrays_by_keyword_have_traced_brackets(self):
        doc = numpy.arange(S) // 7
        mask = Mask(lambda b, h, q, k, doc: doc[q] == doc[k], doc=doc)
        assert torch.equal(visible(mask), wanted(lambda q, k: q // 7 == k // 7))

    def test_lookup_reads_captured_arrays(self):
        doc, table = numpy.arange(S) // 7, [0, 1, 0, 1]
        mask = Mask(lambda b, h, q, k: (flashspan.lookup(doc, q) == flashspan.lookup(doc, k)) & (flashspan.lookup(table, q % 4) == 1))
        assert torch.equal(visible(mask), wanted(lambda q, k: (q // 7 == k // 7) & (q % 2 == 1)))
        assert flashspan.lookup(doc, 8) == 1

    def test_arrays_by_keyword_have_the_shape_of_the_axes_without_an_index(self):
        table = numpy.arange(2 * S).reshape(2, S) // 7
        mask = Mask(lambda b, h, q, k, table: (table[1][q] == table[1, k]) & (q < table.shape[1] - table[0].shape[0] + 9)
                    & (table.ndim == 2) & (k >= table[1].ndim), table=table)
        assert torch.equal(visible(mask), wanted(lambda q, k: ((q + S) // 7 == (k + S) // 7) & (q < 9) & (k >= 1)))

    @pytest.mark.parametrize("causal, width", [(True, 3), (False, 9)])
    def test_what_is_known_when_the_mask_is_made_is_chosen_then(self, causal, width):
        mask = Mask(lambda b, h, q, k: (abs(q - k) < flashspan.where(causal, flashspan.minimum(width, 5), flashspan.maximum(width, 2)))
                    & flashspan.where(causal, q >= k, True))
        assert torch.equal(visible(mask), wanted(lambda q, k: (abs(q - k) < width) & ((q >= k) | (not causal))))

    def test_numbers_by_keyword_are_values_of_the_call(self):
        mask = Mask(lambda b, h, q, k, width: q - k < width, width=5)
        both = Mask(lambda b, h, q, k, DOC: DOC[q] < width_named(k), DOC=3 * DOC)
        assert torch.equal(visible(both), wanted(lambda q, k: 3 * DOC[q] < DOC[k]))
        assert repr(mask) == "Mask('q - k < width', width=5)"
        assert torch.equal(visible(mask), wanted(lambda q, k: q - k < 5))


FUNCTIONS = {
    "torch.where": lambda b, h, q, k: torch.where(q % 2 == 0, q, k) > 7,
    "numpy.where": lambda b, h, q, k: numpy.where(q % 2 == 0, q, k) > 7,
    "flashspan.where": lambda b, h, q, k: flashspan.where(q > k, q - k, k - q) < 4,
    "extremes": lambda b, h, q, k: flashspan.minimum(q, 5) + flashspan.maximum(k, q) > torch.maximum(k, q - 9) + numpy.minimum(q, k),
    "clamp": lambda b, h, q, k: torch.clamp(q - k, min=-2, max=3) == (q - k).clip(-5, 3),
    "logic": lambda b, h, q, k: torch.logical_xor(q > 3, k > 3) | ~torch.logical_or(q > 7, k > 9) | ((q > 5) ^ (k < 4)),
    "division": lambda b, h, q, k: (torch.div(q - k, 3, rounding_mode="floor") % 2 == 0) & (math.floor((q - k) / 4) != 1),
    "negation": lambda b, h, q, k: -(q - k) < abs(k - 2 * q) - (q - (k - 1)),
    "powers": lambda b, h, q, k: (q - k) ** 2 <= (k ** 1) + 2.0 ** (q % 3) * 1.01,
    "whole powers": lambda b, h, q, k: ((q - k) / 4) ** 2.0 + (q - k) ** 0 + (k - q - 0.5) ** 3 < 1.3 - (q - k + 0.5) ** -1,
    "roots": lambda b, h, q, k: torch.sqrt(q * 1.0) + (k * 1.0) ** 0.5 < 6.03,
    "types of Python's": lambda b, h, q, k: (q > 3).to(int) + (k > 5).to(torch.int64) * 2 == (q % 2).to(bool).to(int),
    "truth as numbers": lambda b, h, q, k: (q > 3).to(torch.int32) + (k > 5).int() * 2 == 2,
    "shifts": lambda b, h, q, k: (q << 2) + (k >> 1) > 30,
    "bits": lambda b, h, q, k: ((q & 5) == ((k >> 1) & 5)) | ((q & 1 | k & 6) == 3),
    "reflected": lambda b, h, q, k: (20 - q > 3 * k // 2) & (5 <= 100 // (k + 1)) & (7 % (q + 1) != 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_operators(name):
    function = FUNCTIONS[name]
    pairs = torch.tensor([[bool(_plainly(function, q, k)) for k in range(S)] for q in range(S)])
    assert torch.equal(visible(Mask(function)), pairs)


def _plainly(function, q, k):
    """`function` on tensors of one element; where NumPy's and Flashspan's functions cannot take them, on numbers."""
    q, k = torch.tensor(q), torch.tensor(k)
    patched = {"where": torch.where, "minimum": lambda a, b: torch.minimum(torch.as_tensor(a), torch.as_tensor(b)),
               "maximum": lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b))}
    fake = type("Functions", (), {name: staticmethod(value) for name, value in patched.items()})
    scope = {**function.__globals__, "flashspan": fake, "numpy": fake}
    plain = type(function)(function.__code__, scope)
    return plain(torch.tensor(0), torch.tensor(0), q, k)


def width_named(k):
    return DOC[k]


TABLE = torch.randn(S, S)
ARRAY = numpy.arange(S)
WHOLE = torch.arange(S)


def _if(b, h, q, k):
    if q > k:  # refused here
        return q > 3
    return q < 3


def _and(b, h, q, k):
    return (q >= k) and (q < 3)  # refused here


def _chain(b, h, q, k):
    return 0 <= q - k < 3  # refused here


def _item(b, h, q, k):
    return q >= k.item()  # refused here


def _int(b, h, q, k):
    return q >= int(k)  # refused here


def _length(b, h, q, k):
    return q >= len(k)  # refused here


def _loop(b, h, q, k):
    return any(part == k for part in q)  # refused here


def _array(b, h, q, k):
    return ARRAY[q] == ARRAY[k]  # refused here


def _whole(b, h, q, k):
    return q >= WHOLE  # refused here


def _slice(b, h, q, k):
    return (TABLE[:, q] > 0).any()  # refused here


def _many(b, h, q, k):
    return TABLE[b, h, q] > 0  # refused here


def _sum(b, h, q, k):
    return TABLE[q].sum() > k  # refused here


def _function(b, h, q, k):
    return torch.cumsum(q, 0) > k  # refused here


def _bits(b, h, q, k):
    return (q & k) == 0  # refused here


def _infinite(b, h, q, k):
    return torch.where(q >= k, 1.0, -math.inf) > 0  # refused here


def _ellipsis(b, h, q, k):
    return TABLE[..., q].sum() > 0  # refused here


def _conversion(b, h, q, k):
    return (q / 3).to(int) == k  # refused here


def _unknown_type(b, h, q, k):
    return q.to(torch.LongTensor) == k  # refused here


def _integer_power(b, h, q, k):
    return q - k == 3 ** h  # refused here


def _shifted_by(b, h, q, k):
    return q - k == 1 << h  # refused here


def _number(b, h, q, k):
    return q - k


@pytest.mark.parametrize("function", [_if, _and, _chain, _item, _int, _length, _loop, _array, _whole, _slice, _many, _sum,
                                      _function, _bits, _infinite, _ellipsis, _conversion, _unknown_type,
                                      _integer_power, _shifted_by], ids=lambda function: function.__name__)
def test_what_cannot_be_traced_is_refused_by_its_line(function):
    lines, first = inspect.getsourcelines(function)
    line = first + next(number for number, text in enumerate(lines) if "refused here" in text)
    with pytest.raises(flashspan.TraceError, match=re.escape(f"{__file__}:{line}")) as caught:
        Mask(function)
    assert isinstance(caught.value, TypeError) and lines[line - first].strip() in caught.value.detail


def test_a_mask_that_returns_a_number_is_refused():
    with pytest.raises(flashspan.TraceError, match="returns a number"):
        Mask(_number)


def test_a_callable_of_other_arguments_fails_as_python_does():
    with pytest.raises(TypeError):
        Mask(lambda q, k: q >= k)


def test_callables_are_taken_by_attention_itself():
    query = torch.randn(1, S, 2, 16)
    got = flashspan.attention(query, query, query, mask=lambda b, h, q, k: q >= k, score=lambda score, b, h, q, k: score * 2)
    wanted_out = flashspan.attention(query, query, query, mask="q >= k", score="score * 2")
    assert torch.equal(got, wanted_out)


def test_a_first_call_does_not_import_torchs_compiler():
    """Which takes seconds, longer than compiling a kernel."""
    program = textwrap.dedent("""
        import sys, torch, flashspan
        assert "torch._dynamo" not in sys.modules
        query = torch.ones(1, 4, 1, 16, requires_grad=True)
        doc = torch.zeros(4, dtype=torch.int32)
        mask = flashspan.Mask(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]))
        score = flashspan.Score(lambda score, b, h, q, k: torch.tanh(score))
        flashspan.attention(query, query, query, mask=mask, score=score).sum().backward()
        print(*(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
