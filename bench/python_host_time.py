#!/usr/bin/env python3
"""Host time of attention through torch: python_host_time.py [--device cuda|cpu]

A warm call, without and with autograd, of flashspan.attention (eager and compiled), of FlexAttention compiled and of SDPA; then,
each in a fresh process, the first forward and backward of a new mask with a cold cache and with a warm disk. Microseconds,
the best of many rounds; no synchronisation inside a round. On the CPU, where FlexAttention has no backward and the work itself
is in the figure, tensors are so small that a call is little but host time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch

FIRST_CALL = """
import time, torch
device, length = "{device}", {length}
synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
query = torch.randn(1, length, 8, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
doc = torch.arange(length, device=device, dtype=torch.int32) // 700
synchronize()
imported = time.perf_counter()
{program}
synchronize()
print(time.perf_counter() - imported)
"""
OURS = """
import flashspan
mask = flashspan.Mask(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]))
flashspan.attention(query, query, query, mask=mask).sum().backward()
"""
FLEX = """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
mask = torch.compile(create_block_mask)(lambda b, h, q, k: (q >= k) & (doc[q] == doc[k]), 1, None, length, length)
heads_first = query.transpose(1, 2)
torch.compile(flex_attention)(heads_first, heads_first, heads_first, block_mask=mask).sum().backward()
"""


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def best_microseconds(call, device, rounds=60, calls=100):
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - begin) / calls * 1e6)
    return best


def warm_calls(device, requires_grad):
    import flashspan

    length, head_dim = (128, 64) if device == "cuda" else (16, 16)
    query = torch.randn(1, length, 2, head_dim, device=device, dtype=torch.bfloat16, requires_grad=requires_grad)
    heads_first = query.transpose(1, 2)
    doc = torch.arange(length, device=device, dtype=torch.int32) // 5
    causal, documents = flashspan.masks.causal(), flashspan.masks.causal_document(doc)
    fixed = documents.fixed()
    compiled = torch.compile(lambda query: flashspan.attention(query, query, query, mask=causal), fullgraph=True)
    calls = {
        "flashspan, no mask": lambda: flashspan.attention(query, query, query),
        "flashspan, causal": lambda: flashspan.attention(query, query, query, mask=causal),
        "flashspan, documents": lambda: flashspan.attention(query, query, query, mask=documents),
        "flashspan, documents, fixed": lambda: flashspan.attention(query, query, query, mask=fixed),
        "flashspan, causal, compiled": lambda: compiled(query),
        "SDPA, causal": lambda: torch.nn.functional.scaled_dot_product_attention(heads_first, heads_first, heads_first,
                                                                                 is_causal=True),
    }
    if device == "cuda":
        calls["FlexAttention, causal, compiled"] = flex_call(heads_first)
    return calls


def flex_call(heads_first):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = heads_first.shape[2]
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, 1, None, length, length)
    flex = torch.compile(flex_attention)
    return lambda: flex(heads_first, heads_first, heads_first, block_mask=block_mask)


def first_call(program, device, environment):
    program = FIRST_CALL.format(program=program, device=device, length=4096 if device == "cuda" else 256)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment})
    return float(done.stdout.split()[-1])


def first_calls(device):
    with tempfile.TemporaryDirectory() as folder:
        programs = {"flashspan": OURS}
        if device == "cuda":
            programs["FlexAttention"] = FLEX
        environment = {"FLASHSPAN_CACHE_DIR": os.path.join(folder, "ours"),
                       "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "theirs"),
                       "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
        for state in ("cold cache", "warm disk"):
            for name, program in programs.items():
                print(f"first forward and backward, {state}, {name}: {first_call(program, device, environment):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}")
    for requires_grad in (False, True):
        for name, call in warm_calls(device, requires_grad).items():
            print(f"warm, {'with' if requires_grad else 'without'} autograd, {name}: {best_microseconds(call, device):.1f} us")
    first_calls(device)


if __name__ == "__main__":
    main()
