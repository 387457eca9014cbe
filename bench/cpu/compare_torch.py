"""Runs flashspan_bench_cpu beside torch's CPU scaled_dot_product_attention, in turns, and prints a table of ratios.

Usage: compare_torch.py path/to/flashspan_bench_cpu [--threads 2] [--rounds 3] [--filter text]

Every case uses the same tensors on both sides; outputs and gradients are checked against each other first. Times are
the best of all rounds, for each side alike, so that other work on the machine disturbs them least. For document masks
torch is given the dense boolean mask, which is how it is told about them.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F

CASES = [
    # name, batch, heads, kv heads, length, head dim, dtype, mask, documents
    ("full", 1, 4, 4, 2048, 64, "f32", "full", 0),
    ("full", 1, 4, 4, 2048, 128, "f32", "full", 0),
    ("causal", 1, 4, 4, 2048, 64, "f32", "causal", 0),
    ("causal", 2, 8, 8, 1024, 128, "f32", "causal", 0),
    ("causal documents of S/16", 1, 4, 4, 2048, 64, "f32", "", 16),
    ("causal GQA 8/2", 1, 8, 2, 2048, 64, "f32", "causal", 0),
    ("full, short", 4, 8, 8, 128, 64, "f32", "full", 0),
    ("full", 1, 4, 4, 2048, 64, "bf16", "full", 0),
    ("causal", 1, 4, 4, 2048, 128, "bf16", "causal", 0),
    ("causal documents of S/16", 1, 4, 4, 2048, 64, "bf16", "", 16),
]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"f32": 1e-4, "bf16": 3e-2, "f16": 4e-3}


def write(path, tensor):
    tensor.detach().contiguous().view(torch.uint8).numpy().tofile(path)


def read(path, like):
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=like.dtype)
    return data.view(like.shape)


def relative_error(ours, theirs):
    ours, theirs = ours.double(), theirs.double()
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


class TorchSide:
    def __init__(self, case, tensors):
        _, _, heads, kv_heads, length, _, _, mask, documents = case
        self.query, self.key, self.value = (t.clone().requires_grad_() for t in tensors[:3])
        self.out_gradient = tensors[3]
        self.options = {"enable_gqa": heads != kv_heads}
        if mask == "causal":
            self.options["is_causal"] = True
        if documents:
            position = torch.arange(length)
            document = position // (length // documents)
            self.options["attn_mask"] = (position[:, None] >= position[None, :]) & (
                document[:, None] == document[None, :])

    def forward(self):
        return F.scaled_dot_product_attention(self.query, self.key, self.value, **self.options)

    def measure(self, repetitions):
        """Best forward (without a graph) and backward times in milliseconds, and the results."""
        forward, backward = [], []
        for _ in range(repetitions + 1):
            with torch.no_grad():
                start = time.perf_counter()
                self.forward()
                forward.append(time.perf_counter() - start)
            out = self.forward()
            start = time.perf_counter()
            gradients = torch.autograd.grad(out, (self.query, self.key, self.value), self.out_gradient)
            backward.append(time.perf_counter() - start)
        return min(forward[1:]) * 1e3, min(backward[1:]) * 1e3, (out.detach(), *gradients)


def ours(binary, case, folder, threads, repetitions):
    _, batch, heads, kv_heads, length, head_dim, dtype, mask, documents = case
    command = [binary, "--batch", batch, "--query-heads", heads, "--kv-heads", kv_heads, "--q-len", length, "--kv-len",
               length, "--head-dim", head_dim, "--threads", threads, "--repetitions", repetitions, "case", folder,
               "--dtype", dtype, "--mask", mask or "full", "--documents", documents]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    times = json.loads(done.stdout)
    return times["forward_ms"], times["backward_ms"]


def run_case(binary, case, arguments):
    name, batch, heads, kv_heads, length, head_dim, dtype, _, _ = case
    torch.manual_seed(1)
    shapes = [(batch, heads, length, head_dim), *[(batch, kv_heads, length, head_dim)] * 2,
              (batch, heads, length, head_dim)]
    tensors = [torch.randn(shape).to(DTYPES[dtype]) for shape in shapes]
    side = TorchSide(case, tensors)
    best = [float("inf")] * 4
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for file, tensor in zip(("query", "key", "value", "out_gradient"), tensors):
            write(folder / f"{file}.bin", tensor)
        for _ in range(arguments.rounds):
            mine = ours(binary, case, folder, arguments.threads, arguments.repetitions)
            theirs = side.measure(arguments.repetitions)
            best = [min(pair) for pair in zip(best, (*mine, *theirs[:2]))]
        error = max(relative_error(read(folder / f"{file}.bin", result), result) for file, result in zip(
            ("out", "query_gradient", "key_gradient", "value_gradient"), theirs[2]))
    if not error < TOLERANCE[dtype]:
        raise SystemExit(f"{name}: results differ by {error}")
    shape = f"B{batch} H{heads}/{kv_heads} S{length} D{head_dim} {dtype}"
    print(f"| {name} | {shape} | {best[0]:.2f} | {best[2]:.2f} | {best[0] / best[2]:.2f} | {best[1]:.2f} "
          f"| {best[3]:.2f} | {best[1] / best[3]:.2f} | {error:.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--filter", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads; best of {arguments.rounds} x "
          f"{arguments.repetitions}\n")
    print("| mask | case | forward ms | torch ms | ratio | backward ms | torch ms | ratio | largest difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        if arguments.filter in f"{case[0]} {case[6]}":
            run_case(arguments.binary, case, arguments)


if __name__ == "__main__":
    main()
