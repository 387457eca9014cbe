"""Times flashspan_bench_gpu beside PyTorch's engines on one GPU, in one run, and checks our results against torch.

Usage: python3 bench/gpu/compare.py --bench path/to/flashspan_bench_gpu --out folder [--head-dims 64,128]
       [--length 8192] [--tokens 32768] [--families causal,document] [--engines cudnn,fa2,flex]

Writes folder/gpu.json and folder/gpu.md. Exit code 1 if our results are off or the benchmark fails; an engine of
torch that fails is noted in its row. A forward or backward of ours includes planning its tiles from the mask's data,
each time; FlexAttention's block mask is made beforehand and not counted. FLOPs are those of visible (query, key)
pairs: 4 D a pair forward, 10 D backward. Times drift by a few per cent between runs: compare within one.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HIDDEN = 4096  # heads * head dim of the timed problems
SDPA = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def document_ids(length, count, seed):
    """Document of every token: `count` documents of random lengths, ends off any tile boundary."""
    generator = torch.Generator().manual_seed(seed)
    cuts = torch.randperm(length - 1, generator=generator)[: count - 1] + 1
    ids = torch.zeros(length, dtype=torch.int32)
    ids[cuts] = 1
    return torch.cumsum(ids, 0).to(torch.int32)


class Family:
    """One mask: our text and tensors, and the predicate that torch's engines take."""

    def __init__(self, name, text, predicate, tensors=None, sdpa=None):
        self.name, self.text, self.predicate = name, text, predicate
        self.tensors, self.sdpa = tensors or {}, sdpa

    def density(self, length, device):
        keys = torch.arange(length, device=device)
        visible = 0
        for start in range(0, length, 1024):
            queries = torch.arange(start, min(length, start + 1024), device=device)
            grid = self.predicate(0, 0, queries[:, None], keys[None, :])
            visible += torch.broadcast_to(grid, (len(queries), length)).sum().item()
        return visible / length / length


def families(length, device):
    ids = document_ids(length, max(4, length // 2048), seed=0)
    doc = ids.to(device)
    window, prefix = max(16, length // 8), length // 4 + 37
    generator = torch.Generator().manual_seed(1)
    life = torch.randint(1, length, (length,), generator=generator)
    end = (torch.arange(length) + life).clamp(max=length).to(torch.int32)
    end_there = end.to(device)
    return [
        Family("full", "full", lambda b, h, q, k: q >= 0, sdpa=False),
        Family("causal", "causal", lambda b, h, q, k: q >= k, sdpa=True),
        Family("sliding_window", f"causal_window(left={window - 1})", lambda b, h, q, k: (q >= k) & (q - k < window)),
        Family("document", "document", lambda b, h, q, k: doc[q] == doc[k], {"doc": ids}),
        Family("causal_document", "causal_document", lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k), {"doc": ids}),
        Family("prefix_lm", f"prefix_lm(prefix={prefix})", lambda b, h, q, k: (q >= k) | (k < prefix)),
        Family("random_eviction", "(q >= k) & (q < end[k])", lambda b, h, q, k: (q >= k) & (q < end_there[k]),
               {"end": end}),
    ]


def bench(path, family, folder, arguments):
    """One line of flashspan_bench_gpu."""
    command = [path, "--mask", family.text, *arguments]
    for name, values in family.tensors.items():
        file = folder / f"{family.name}.{name}"
        write_raw(file, values)
        command += ["--tensor", f"{name}={file}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{family.name}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def write_raw(file, tensor):
    tensor = tensor.contiguous().cpu()
    file.write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))


def read_raw(file, dtype, shape):
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=dtype).view(shape)


def dense(q, k, v, visible, group, out_gradient):
    """out, lse and gradients by dense attention in the dtype of the tensors."""
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~visible, float("-inf"))
    out = torch.softmax(scores, -1) @ values
    out.backward(out_gradient)
    return {"out": out.detach(), "lse": torch.logsumexp(scores.detach(), -1), "dq": q.grad, "dk": k.grad, "dv": v.grad}


def check(path, head_dim, device, folder):
    """Errors of ours and of plain bf16 attention against fp64 on a small problem of awkward length, per family."""
    batch, heads, kv_heads, length = 2, 4, 2, 1000
    generator = torch.Generator().manual_seed(head_dim)
    shapes = {"q": heads, "k": kv_heads, "v": kv_heads, "do": heads}
    inputs = {name: torch.randn(batch, count, length, head_dim, generator=generator).to(torch.bfloat16)
              for name, count in shapes.items()}
    for name, tensor in inputs.items():
        write_raw(folder / name, tensor)
    rows = []
    index = torch.arange(length, device=device)
    for family in families(length, device):
        bench(path, family, folder,
              ["--batch", str(batch), "--heads", str(heads), "--kv-heads", str(kv_heads), "--length", str(length),
               "--head-dim", str(head_dim), "--inputs", str(folder), "--results", str(folder), "--rounds", "0"])
        visible = torch.broadcast_to(family.predicate(0, 0, index[:, None], index[None, :]), (length, length))
        q, k, v, do = (inputs[name].to(device) for name in ("q", "k", "v", "do"))
        reference = dense(q.double(), k.double(), v.double(), visible, heads // kv_heads, do.double())
        plain = dense(q, k, v, visible, heads // kv_heads, do)
        row = {"family": family.name, "head_dim": head_dim, "ok": True}
        for name, expected in reference.items():
            dtype = torch.float32 if name == "lse" else torch.bfloat16
            ours = read_raw(folder / name, dtype, expected.shape).to(device).double()
            error = (ours - expected).abs().max().item()
            yardstick = (plain[name].double() - expected).abs().max().item()
            allowed = 1e-4 if name == "lse" else 2 * yardstick + 2**-8 * expected.abs().max().item()
            row[name] = {"error": error, "plain_bf16_error": yardstick}
            row["ok"] = row["ok"] and error <= allowed  # false for NaN
        rows.append(row)
    return rows


def median_ms(work, grad_to_none=None):
    from triton.testing import do_bench
    return do_bench(work, warmup=25, rep=150, return_mode="median", grad_to_none=grad_to_none)


def time_torch(engine, family, batch, heads, length, head_dim, device):
    """Forward and backward milliseconds of one of torch's engines, and the seconds until the first ones were done."""
    q, k, v = (torch.randn(batch, heads, length, head_dim, device=device, dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))
    start = time.time()
    if engine == "flex":
        block_mask = create_block_mask(family.predicate, None, None, length, length, device=device, _compile=True)
        compiled = torch.compile(flex_attention, dynamic=False)
        attend = lambda: compiled(q, k, v, block_mask=block_mask)
        out = attend()
    else:
        attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=family.sdpa)
        with sdpa_kernel(SDPA[engine]):
            out = attend()
    out_gradient = torch.randn_like(out)
    out.backward(out_gradient, retain_graph=True)
    torch.cuda.synchronize()
    cold = time.time() - start
    backward = median_ms(lambda: out.backward(out_gradient, retain_graph=True), [q, k, v])
    with torch.no_grad():
        if engine == "flex":
            forward = median_ms(attend)
        else:
            with sdpa_kernel(SDPA[engine]):
                forward = median_ms(attend)
    return forward, backward, cold


def measure(arguments, device, folder):
    rows = []
    for head_dim in arguments.head_dims:
        length, heads = arguments.length, HIDDEN // head_dim
        batch = max(1, arguments.tokens // length)
        for family in families(length, device):
            if arguments.families and family.name not in arguments.families:
                continue
            density = family.density(length, device)
            flops = 4.0 * batch * heads * length * length * head_dim * density
            size = ["--batch", str(batch), "--heads", str(heads), "--length", str(length), "--head-dim", str(head_dim)]

            def add(engine, forward, backward, cold, **more):
                rows.append({"engine": engine, "family": family.name, "head_dim": head_dim, "length": length,
                             "batch": batch, "heads": heads, "density": density, "forward_ms": forward,
                             "backward_ms": backward, "forward_tflops": flops / forward / 1e9,
                             "backward_tflops": 2.5 * flops / backward / 1e9, "cold_s": cold, **more})
                print(json.dumps(rows[-1]), flush=True)

            torch.cuda.empty_cache()
            line = bench(arguments.bench, family, folder, size)
            add("flashspan", line["forward_ms"], line["backward_ms"],
                (line["forward"]["cold_ms"] + line["backward"]["cold_ms"]) / 1e3, kernels=[line["forward"], line["backward"]])
            for engine in arguments.engines:
                if engine in SDPA and family.sdpa is None:
                    continue
                try:
                    add(engine, *time_torch(engine, family, batch, heads, length, head_dim, device))
                except Exception as problem:  # an engine that this torch lacks is a row, not the end of the run
                    rows.append({"engine": engine, "family": family.name, "head_dim": head_dim, "failed": repr(problem)[:300]})
                    print(json.dumps(rows[-1]), flush=True)
                torch._dynamo.reset()
    return rows


def markdown(machine, checks, rows):
    lines = [f"# Attention on {machine['gpu']}", "",
             f"torch {machine['torch']}, cuDNN {machine['cudnn']}, {machine['date']}. bf16; TFLOP/s on visible pairs. `cold` is "
             "the time until the first forward and backward: for ours both compiles.", "",
             "| mask | D | S | density | engine | forward ms | backward ms | forward TFLOP/s | backward TFLOP/s | cold s |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['family']} | {row['head_dim']} | | | {row['engine']} | failed | | | | |")
            continue
        lines.append(f"| {row['family']} | {row['head_dim']} | {row['length']} | {row['density']:.4f} | {row['engine']} | "
                     f"{row['forward_ms']:.3f} | {row['backward_ms']:.3f} | {row['forward_tflops']:.0f} | "
                     f"{row['backward_tflops']:.0f} | {row['cold_s']:.2f} |")
    lines += ["", "Largest errors against fp64 (B 2, H 4/2, S 1000), ours / plain bf16 attention:", "",
              "| mask | D | out | lse | dq | dk | dv | |", "|---|---|---|---|---|---|---|---|"]
    for row in checks:
        cells = " | ".join(f"{row[name]['error']:.2e} / {row[name]['plain_bf16_error']:.2e}"
                           for name in ("out", "lse", "dq", "dk", "dv"))
        lines.append(f"| {row['family']} | {row['head_dim']} | {cells} | {'ok' if row['ok'] else 'OFF'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--families", default="")
    parser.add_argument("--engines", default="cudnn,fa2,flex")
    arguments = parser.parse_args()
    arguments.head_dims = [int(text) for text in arguments.head_dims.split(",")]
    arguments.families = [text for text in arguments.families.split(",") if text]
    arguments.engines = [text for text in arguments.engines.split(",") if text]
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = "cuda"
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
               "cudnn": torch.backends.cudnn.version(), "date": time.strftime("%Y-%m-%d")}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        checks = [row for head_dim in arguments.head_dims for row in check(arguments.bench, head_dim, device, folder)]
        for row in checks:
            print(json.dumps(row), flush=True)
        rows = measure(arguments, device, folder)
    (arguments.out / "gpu.json").write_text(json.dumps({"machine": machine, "checks": checks, "times": rows}, indent=1))
    (arguments.out / "gpu.md").write_text(markdown(machine, checks, rows))
    return 0 if all(row["ok"] for row in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
