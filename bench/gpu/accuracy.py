"""Errors of our results: against binary64 on small problems, and against another engine's results."""

import concurrent.futures

import families
import ours
import torch

BATCH, HEADS, KV_HEADS, LENGTH = 2, 4, 2, 1000
PROCESSES = 8  # at a time


def relative_error(got, expected):
    """Frobenius norm of the difference by that of what is expected."""
    return ((got.float() - expected.float()).norm() / expected.float().norm()).item()


def dense(q, k, v, visible, group, out_gradient):
    """out, lse and gradients by dense attention in the dtype of the tensors."""
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    keys, values = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    sees = visible.any(-1, keepdim=True)  # a row that sees nothing takes part unmasked, with weights 0: no NaN arises
    scores = ((q @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5).masked_fill(~visible & sees, float("-inf"))
    out = torch.softmax(scores, -1).masked_fill(~sees, 0) @ values
    out.backward(out_gradient)
    lse = torch.logsumexp(scores.detach(), -1).masked_fill(~sees.squeeze(-1), float("-inf"))
    return {"out": out.detach(), "lse": lse, "dq": q.grad, "dk": k.grad, "dv": v.grad}


def check_one(bench, family, form_name, head_dim, inputs, device, folder, backward):
    """Largest errors of ours and of plain bf16 attention against binary64."""
    results = folder / f"check.{family.name}.{form_name}"
    row = {"family": family.name, "form": form_name, "head_dim": head_dim, "ok": True}
    try:
        ours.figures(bench, family.form(form_name), results, device=device, batch=BATCH, heads=HEADS, kv_heads=KV_HEADS,
                     length=LENGTH, head_dim=head_dim, inputs=folder, results=results, rounds=0,
                     forward_only=not backward)
    except ours.BenchError as problem:
        return row | {"ok": False, "failed": str(problem)}
    index = torch.arange(LENGTH, device=device)
    visible = torch.broadcast_to(family.predicate(0, 0, index[:, None], index[None, :]), (LENGTH, LENGTH))
    q, k, v, do = (inputs[name].to(device) for name in ("q", "k", "v", "do"))
    reference = dense(q.double(), k.double(), v.double(), visible, HEADS // KV_HEADS, do.double())
    plain = dense(q, k, v, visible, HEADS // KV_HEADS, do)
    for name in reference if backward else ("out", "lse"):
        expected = reference[name]
        dtype = torch.float32 if name == "lse" else torch.bfloat16
        got = ours.read_raw(results / name, dtype, expected.shape).to(device).double()
        # Where a row sees nothing both are -inf, whose difference is NaN.
        error = torch.where(got == expected, 0, got - expected).abs().max().item()
        yardstick = torch.where(plain[name] == expected, 0, plain[name].double() - expected).abs().max().item()
        allowed = 1e-4 if name == "lse" else 2 * yardstick + 2**-8 * expected.abs().max().item()
        row[name] = {"error": error, "plain_bf16_error": yardstick}
        row["ok"] = row["ok"] and error <= allowed  # false for NaN
    return row


def check(bench, head_dim, forms, device, folder, backward):
    """One row for each family and form, on a problem of awkward length with shared keys."""
    generator = torch.Generator().manual_seed(head_dim)
    counts = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS, "do": HEADS}
    inputs = {name: torch.randn(BATCH, count, LENGTH, head_dim, generator=generator).to(torch.bfloat16)
              for name, count in counts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in inputs.items():
        ours.write_raw(folder / name, tensor)
    masks = [make(LENGTH, device) for make in (*families.ALL.values(), families.hides_nothing)]
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        jobs = [pool.submit(check_one, bench, family, form, head_dim, inputs, device, folder, backward)
                for family in masks for form in family.form_names(forms)]
        return [job.result() for job in jobs]
