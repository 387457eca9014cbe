#!/usr/bin/env python3
"""Host time of attention through torch: python_host_time.py

A warm call, without and with autograd, of flashspan.attention (eager and compiled), of FlexAttention compiled and of SDPA; then,
each in a fresh process, the first forward and backward of a new mask with a cold cache and with a warm disk. Microseconds,
the best of several rounds; no synchronisation inside a round.
"""

import os
import subprocess
import sys
import tempfile
import time

import torch

FIRST_CALL = """
import time, torch
begin = time.perf_counter()
query = torch.randn(1, 4096, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
doc = torch.arange(4096, device="cuda", dtype=torch.int32) // 700
torch.cuda.synchronize()
imported = time.perf_counter()
{program}
torch.cuda.synchronize()
print(time.perf_counter() - imported)
"""
OURS = """
import flashspan
mask = flashspan.Mask(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]))
flashspan.attention(query, query, query, mask=mask).sum().backward()
"""
FLEX = """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
mask = torch.compile(create_block_mask)(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]), 1, None, 4096, 4096)
heads_first = query.transpose(1, 2)
torch.compile(flex_attention)(heads_first, heads_first, heads_first, block_mask=mask).sum().backward()
"""


def best_microseconds(call, rounds=7, calls=200):
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - begin) / calls * 1e6)
    return best


def warm_calls(requires_grad):
    import flashspan
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    query = torch.randn(1, 128, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=requires_grad)
    heads_first = query.transpose(1, 2)
    doc = torch.arange(128, device="cuda", dtype=torch.int32) // 50
    causal, documents = flashspan.masks.causal(), flashspan.masks.causal_document(doc)
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, 1, None, 128, 128)
    compiled = torch.compile(lambda query: flashspan.attention(query, query, query, mask=causal), fullgraph=True)
    flex = torch.compile(flex_attention)
    return {
        "flashspan, no mask": lambda: flashspan.attention(query, query, query),
        "flashspan, causal": lambda: flashspan.attention(query, query, query, mask=causal),
        "flashspan, documents": lambda: flashspan.attention(query, query, query, mask=documents),
        "flashspan, causal, compiled": lambda: compiled(query),
        "FlexAttention, causal, compiled": lambda: flex(heads_first, heads_first, heads_first, block_mask=block_mask),
        "SDPA, causal": lambda: torch.nn.functional.scaled_dot_product_attention(heads_first, heads_first, heads_first,
                                                                                 is_causal=True),
    }


def first_call(program, environment):
    done = subprocess.run([sys.executable, "-c", FIRST_CALL.format(program=program)], capture_output=True, text=True,
                          check=True, env={**os.environ, **environment})
    return float(done.stdout.split()[-1])


def main():
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for requires_grad in (False, True):
        for name, call in warm_calls(requires_grad).items():
            print(f"warm, {'with' if requires_grad else 'without'} autograd, {name}: {best_microseconds(call):.1f} us")
    with tempfile.TemporaryDirectory() as folder:
        ours = {"FLASHSPAN_CACHE_DIR": os.path.join(folder, "ours")}
        theirs = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "theirs"), "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
        for state in ("cold cache", "warm disk"):
            print(f"first forward and backward, {state}, flashspan: {first_call(OURS, ours):.2f} s")
            print(f"first forward and backward, {state}, FlexAttention: {first_call(FLEX, theirs):.2f} s")


if __name__ == "__main__":
    main()
