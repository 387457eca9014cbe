#!/usr/bin/env python3
"""Host time of attention through torch: python_host_time.py [--device cuda|cpu] [--minutes 10]

Each in a fresh process, the first forward and backward of a new mask with a cold cache and with a warm disk; then a warm
forward, without and with autograd, and a warm forward and backward of flashspan.attention (eager and compiled), of FlexAttention
compiled and of SDPA. Microseconds, the best of many rounds; no synchronisation inside a round. On the CPU, where FlexAttention
has no backward and the work itself is in the figure, tensors are so small that a call is little but host time.

A line is printed as soon as it is known. First calls wait for no process for longer than --minutes leave.
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


def best_microseconds(call, device, rounds=60, calls=50):
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):  # so few that the queue of launches does not fill up
            call()
        best = min(best, (time.perf_counter() - begin) / calls * 1e6)
    return best


def warm_calls(device, requires_grad):
    """By name, forwards of a query."""
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


def with_backward(forward):
    """`forward`, and its backward with a gradient that is there already."""
    gradient = torch.ones_like(forward())

    def call():
        out = forward()
        torch.autograd.backward(out, gradient)
    return call


def warm_times(device):
    for name, call in warm_calls(device, requires_grad=False).items():
        say(f"warm forward, {name}: {best_microseconds(call, device):.1f} us")
    for name, call in warm_calls(device, requires_grad=True).items():
        say(f"warm forward with autograd, {name}: {best_microseconds(call, device):.1f} us")
        say(f"warm forward and backward, {name}: {best_microseconds(with_backward(call), device):.1f} us")


def flex_call(heads_first):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = heads_first.shape[2]
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, 1, None, length, length)
    flex = torch.compile(flex_attention)
    return lambda: flex(heads_first, heads_first, heads_first, block_mask=block_mask)


def first_call(program, device, environment, seconds):
    """How long it took, in words."""
    program = FIRST_CALL.format(program=program, device=device, length=4096 if device == "cuda" else 256)
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds,
                              env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return f"not within {seconds:.0f} s"
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1]}"
    return f"{float(done.stdout.split()[-1]):.2f} s"


def first_calls(device, end):
    with tempfile.TemporaryDirectory() as folder:
        programs = {"flashspan": OURS}
        if device == "cuda":
            programs["FlexAttention"] = FLEX
        environment = {"FLASHSPAN_CACHE_DIR": os.path.join(folder, "ours"),
                       "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "theirs"),
                       "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
        for state in ("cold cache", "warm disk"):
            for name, program in programs.items():
                took = first_call(program, device, environment, max(1.0, end - time.monotonic()))
                say(f"first forward and backward, {state}, {name}: {took}")


def say(line):
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name() if options.device == 'cuda' else 'CPU'}")
    first_calls(options.device, end - 60)  # what is warm takes less than a minute
    warm_times(options.device)


if __name__ == "__main__":
    main()
