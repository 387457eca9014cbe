"""Mask families of the comparison: for each the predicate that torch takes and the texts and data that we take."""

import dataclasses
from typing import Callable

import torch


@dataclasses.dataclass
class Form:
    """One way to give a mask to us: text, tensors by name (int32, on the host) and integers by name."""

    text: str
    tensors: dict = dataclasses.field(default_factory=dict)
    scalars: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Family:
    """One mask. `plain` says it as the predicate does; `bounds`, where there is one, by a range of keys for each query
    or of queries for each key, as a user of such formats would. `causal`: torch's is_causal, None if it has no such
    mask."""

    name: str
    predicate: Callable
    plain: Form
    bounds: Form | None = None
    causal: bool | None = None

    def form(self, name):
        """The form that is asked for; families without bounds have one form."""
        return self.bounds if name == "bounds" and self.bounds else self.plain

    def form_names(self, wanted):
        return [name for name in wanted if name == "plain" or self.bounds] or ["plain"]

    def density(self, length, device):
        """Visible pairs of all pairs."""
        keys = torch.arange(length, device=device)
        visible = 0
        for start in range(0, length, 1024):
            queries = torch.arange(start, min(length, start + 1024), device=device)
            grid = self.predicate(0, 0, queries[:, None], keys[None, :])
            visible += torch.broadcast_to(grid, (len(queries), length)).sum()
        return int(visible) / length / length


class Documents:
    """Documents that fill a sequence: `ids`, and of each token the `start`, the `length` and the `end` of its own."""

    def __init__(self, ids):
        self.ids = ids.to(torch.int32)
        self.start = torch.searchsorted(self.ids, self.ids).to(torch.int32)
        self.length = torch.bincount(self.ids)[self.ids.long()].to(torch.int32)
        self.end = self.start + self.length

    @staticmethod
    def of_lengths(lengths):
        return Documents(torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)))

    @staticmethod
    def random(length, count, seed=0):
        """`count` documents of random lengths, no end at a tile boundary: cuts are drawn in steps of 64, then shifted."""
        generator = torch.Generator().manual_seed(seed)
        cuts = torch.sort(torch.randperm(length // 64 - 1, generator=generator)[: count - 1] + 1).values * 64
        cuts = (cuts + torch.randint(-31, 32, cuts.shape, generator=generator)).clamp(1, length - 1)
        first = torch.zeros(length, dtype=torch.int32)
        first[cuts.unique()] = 1
        return Documents(torch.cumsum(first, 0))


def full(length, device):
    return Family("full", lambda b, h, q, k: q >= 0, Form("full"), causal=False)


def causal(length, device):
    return Family("causal", lambda b, h, q, k: q >= k, Form("causal"), causal=True)


def sliding_window(length, device):
    w = window_of(length)
    return Family("sliding_window", lambda b, h, q, k: (q >= k) & (q - k < w),
                  Form("(q >= k) & (q - k < w)", scalars={"w": w}))


def global_sliding_window(length, device):
    w, first = window_of(length), 64
    return Family("global_sliding_window", lambda b, h, q, k: (q >= k) & ((q - k < w) | (k < first)),
                  Form("(q >= k) & ((q - k < w) | (k < first))", scalars={"w": w, "first": first}))


def document(length, device, documents=None):
    documents = documents or Documents.random(length, max(4, length // 2048))
    doc = documents.ids.to(device)
    return Family("document", lambda b, h, q, k: doc[q] == doc[k],
                  Form("doc[q] == doc[k]", {"doc": documents.ids}),
                  Form("start[q] <= k < end[q]", {"start": documents.start, "end": documents.end}))


def causal_document(length, device, documents=None):
    documents = documents or Documents.random(length, max(4, length // 2048))
    doc = documents.ids.to(device)
    return Family("causal_document", lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k),
                  Form("(doc[q] == doc[k]) & (q >= k)", {"doc": documents.ids}),
                  Form("(start[q] <= k) & (k <= q)", {"start": documents.start}))


def prefix_lm_causal(length, device):
    prefix = length // 4 + 37
    return Family("prefix_lm_causal", lambda b, h, q, k: (q >= k) | (k < prefix),
                  Form("(q >= k) | (k < prefix)", scalars={"prefix": prefix}))


def prefix_lm_document(length, device):
    """In every document the first quarter is seen by the whole of it, the rest causally."""
    documents = Documents.random(length, max(4, length // 2048))
    prefix = documents.start + documents.length // 4
    doc, prefix_there = documents.ids.to(device), prefix.to(device)
    end = torch.maximum(prefix, torch.arange(1, length + 1, dtype=torch.int32))
    return Family("prefix_lm_document",
                  lambda b, h, q, k: (doc[q] == doc[k]) & ((q >= k) | (k < prefix_there[q])),
                  Form("(doc[q] == doc[k]) & ((q >= k) | (k < prefix[q]))", {"doc": documents.ids, "prefix": prefix}),
                  Form("start[q] <= k < end[q]", {"start": documents.start, "end": end}))


def shared_question(length, device):
    """A document is a question and four answers; an answer sees its question and itself, causally."""
    documents = Documents.random(length, max(4, length // 4096))
    offset = torch.arange(length, dtype=torch.int32) - documents.start
    part_length = (documents.length // 5).clamp(min=1)
    part = (offset // part_length).clamp(max=4).to(torch.int32)  # 0: the question
    last = documents.start + (part + 1) * part_length
    end = torch.where((part == 0) | (part == 4), documents.end, last).to(torch.int32)
    doc, part_there = documents.ids.to(device), part.to(device)
    return Family("shared_question",
                  lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k) & ((part_there[k] == 0) | (part_there[q] == part_there[k])),
                  Form("(doc[q] == doc[k]) & (q >= k) & ((part[k] == 0) | (part[q] == part[k]))",
                       {"doc": documents.ids, "part": part}),
                  Form("(q >= k) & (q < end[k])", {"end": end}))


def causal_blockwise(length, device):
    """Causal documents, of which the last one sees all before it."""
    documents = Documents.random(length, max(4, length // 2048))
    doc, last = documents.ids.to(device), int(documents.ids[-1])
    start = torch.where(documents.ids == last, 0, documents.start).to(torch.int32)
    return Family("causal_blockwise", lambda b, h, q, k: (q >= k) & ((doc[q] == doc[k]) | (doc[q] == last)),
                  Form("(q >= k) & ((doc[q] == doc[k]) | (doc[q] == last))", {"doc": documents.ids}, {"last": last}),
                  Form("(start[q] <= k) & (k <= q)", {"start": start}))


def qk_sparse(length, device):
    """Half of twice as many queries and keys are left; the mask is causal in their former positions."""
    generator = torch.Generator().manual_seed(1)
    positions = [torch.sort(torch.randperm(2 * length, generator=generator)[:length]).values.to(torch.int32)
                 for _ in range(2)]
    q_there, k_there = (tensor.to(device) for tensor in positions)
    return Family("qk_sparse", lambda b, h, q, k: q_there[q] >= k_there[k],
                  Form("q_idx[q] >= k_idx[k]", {"q_idx": positions[0], "k_idx": positions[1]}))


def hash_sparse(length, device):
    """Queries and keys sorted by one of 16 buckets; those of one bucket meet, causal in their former positions."""
    generator = torch.Generator().manual_seed(1)
    data = {}
    for name in ("q", "k"):
        bucket = torch.randint(16, (length,), generator=generator)
        order = torch.argsort(bucket * length + torch.arange(length))
        data[f"{name}_idx"], data[f"{name}_hash"] = order.to(torch.int32), bucket[order].to(torch.int32)
    q_idx, k_idx, q_hash, k_hash = (data[name].to(device) for name in ("q_idx", "k_idx", "q_hash", "k_hash"))
    return Family("hash_sparse", lambda b, h, q, k: (q_hash[q] == k_hash[k]) & (q_idx[q] >= k_idx[k]),
                  Form("(q_hash[q] == k_hash[k]) & (q_idx[q] >= k_idx[k])", data))


def random_eviction(length, device):
    """Every key is evicted at a random later query."""
    generator = torch.Generator().manual_seed(1)
    life = torch.randint(1, length, (length,), generator=generator)
    end = (torch.arange(length) + life).clamp(max=length).to(torch.int32)
    end_there = end.to(device)
    return Family("random_eviction", lambda b, h, q, k: (q >= k) & (q < end_there[k]),
                  Form("(q >= k) & (q < end[k])", {"end": end}))


def hides_nothing(length, device):
    """All is visible, which only the data tell: not one of the families, but the price of a plan."""
    return Family("hides_nothing", lambda b, h, q, k: q >= k - length,
                  Form("q >= k - kv_len - off", scalars={"off": 0}), causal=False)


def window_of(length):
    """Width of the windows; smaller than a short sequence, so that they hide something."""
    return min(1024, max(16, length // 8))


ALL = {make.__name__: make for make in (
    full, causal, sliding_window, global_sliding_window, causal_document, document, shared_question, causal_blockwise,
    prefix_lm_causal, prefix_lm_document, qk_sparse, hash_sparse, random_eviction)}
