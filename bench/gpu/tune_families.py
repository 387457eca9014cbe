"""Tunes every mask family on a device, and shows what that gave: tuning.json and tuning.html.

Usage: python3 bench/gpu/tune_families.py --out folder
       [--head-dims 64,128] [--lengths 8192] [--families causal,document] [--directions forward,backward] [--tokens 16384]
       [--rounds 3] [--minutes 60]

For each family: how long tuning took, the best tile and its gain over the default, timed again in turns with it (`gain` is the
median of the rounds); over all, the geometric mean of the gains, the least, and how often the resource model's first five hold the
best. The page has, where matplotlib is installed, the landscape of each family: every tile's time over the model's order. Both
files are written anew after each family; none begins that would end after --minutes if it took as long as the longest before it.
Exit code 1 if a candidate was wrong. `--device cpu` tries the program itself, not the speed of anything.
"""

import argparse
import html
import io
import itertools
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time

import families
import torch
from result_files import write_whole

HIDDEN = 4096  # heads * head dim of the problems
FIRST = 5  # of the model's order


def problem(family, head_dim, length, tokens, device):
    """The arguments of an attention under the family's mask."""
    heads = HIDDEN // head_dim
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    generator = torch.Generator(device).manual_seed(0)
    query, key, value = (torch.randn(max(1, tokens // length), length, heads, head_dim, device=device, dtype=dtype,
                                     generator=generator) for _ in range(3))
    form = family.plain
    tensors = {name: tensor.to(device) for name, tensor in form.tensors.items()}
    return dict(query=query, key=key, value=value, mask=flashspan.Mask(form.text, **tensors, **form.scalars))


def again(arguments, result, rounds):
    """Gain of the best tile, over rounds in which both tiles are timed anew."""
    gains = []
    for _ in range(rounds):
        timed, = (found for found in flashspan.tune([arguments], configs=[result.best], remember=False,
                                                    backward=result.direction == "backward")
                  if found.direction == result.direction)
        best = next(candidate for candidate in timed.candidates if candidate.config == result.best)
        if best.milliseconds > 0:
            gains.append(timed.default_milliseconds / best.milliseconds)
    return statistics.median(gains) if gains else float("nan")


def row_of(name, head_dim, length, result, seconds, gain):
    candidates = [dict(candidate.details, config=repr(candidate.config)) for candidate in result.candidates]
    measured = [candidate for candidate in candidates if candidate["milliseconds"] > 0]
    ordered = sorted(measured, key=lambda candidate: candidate["predicted_cost"])
    best = min(measured, key=lambda candidate: candidate["milliseconds"])
    return {"family": name, "head_dim": head_dim, "length": length, "direction": result.direction, "seconds": seconds,
            "best": repr(result.best), "milliseconds": result.milliseconds, "default": repr(result.default),
            "default_milliseconds": result.default_milliseconds, "gain": gain,
            "rank_of_best": ordered.index(best) + 1, "candidates": candidates}


def summary_of(rows):
    gains = [row["gain"] for row in rows if row["gain"] == row["gain"]]
    return {"kernels": len(rows),
            "geometric_mean_gain": math.exp(statistics.fmean(math.log(gain) for gain in gains)) if gains else None,
            "least_gain": min(gains, default=None),
            f"best_among_first_{FIRST}": statistics.fmean(row["rank_of_best"] <= FIRST for row in rows) if rows else None,
            "most_seconds": max((row["seconds"] for row in rows), default=None),
            "wrong": sum(candidate["outcome"] == "wrong" for row in rows for candidate in row["candidates"])}


def landscape(row):
    """Times of a row's tiles over the model's order, as SVG; nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    tiles = sorted((candidate for candidate in row["candidates"] if candidate["milliseconds"] > 0),
                   key=lambda candidate: candidate["predicted_cost"])
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    colours = {"measured": "tab:blue", "hopeless": "tab:gray"}
    axes.bar(range(len(tiles)), [tile["milliseconds"] for tile in tiles],
             color=["tab:orange" if tile["config"] == row["default"] else colours[tile["outcome"]] for tile in tiles])
    names = [f"{t['tile']['block_m']}x{t['tile']['block_n']} w{t['tile']['num_warps']} s{t['tile']['num_stages']}" for t in tiles]
    axes.set_xticks(range(len(tiles)), names, rotation=60, ha="right", fontsize=7)
    axes.axhline(row["milliseconds"], color="tab:green", linewidth=0.8)
    axes.set_ylabel("ms")
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg"):]


def page(results, landscapes):
    """One HTML file that needs nothing else. `landscapes`: one for each row."""
    def cell(value):
        return f"<td>{html.escape(f'{value:.4g}' if isinstance(value, float) else str(value))}</td>"

    columns = ("family", "head_dim", "length", "direction", "best", "milliseconds", "default", "default_milliseconds", "gain",
               "rank_of_best", "seconds")
    lines = ["<!doctype html><meta charset='utf-8'><title>Tuning</title>",
             "<style>body{font:14px sans-serif;margin:2em;max-width:90em}table{border-collapse:collapse}"
             "td,th{border:1px solid #ccc;padding:2px 6px;text-align:right}</style>",
             f"<h1>Tuning on {html.escape(results['machine']['device'])}</h1>",
             f"<p>{html.escape(json.dumps(results['machine']))}</p><table>"]
    lines += [f"<tr><th>{name}</th>{cell(value)}</tr>" for name, value in results["summary"].items()]
    lines += ["</table><h2>Kernels</h2><table><tr>", *(f"<th>{name}</th>" for name in columns), "</tr>"]
    lines += ["<tr>" + "".join(cell(row[name]) for name in columns) + "</tr>" for row in results["rows"]]
    lines += ["</table><h2>Landscapes</h2><p>Orange: the default. Grey: stopped early. Green line: the best. "
              "From left to right as the resource model expects them, fastest first.</p>"]
    for row, drawn in zip(results["rows"], landscapes):
        lines += [f"<h3>{html.escape(row['family'])}, {row['direction']}, head dim {row['head_dim']}, {row['length']} tokens</h3>",
                  drawn]
        lines += [f"<p>{html.escape(candidate['config'])}: {candidate['outcome']}: {html.escape(candidate['note'])}</p>"
                  for candidate in row["candidates"] if candidate["outcome"] in ("wrong", "failed", "out_of_time")]
    return "\n".join(lines)


def write(results, landscapes, folder):
    results["summary"] = summary_of(results["rows"])
    landscapes += [landscape(row) for row in results["rows"][len(landscapes):]]
    write_whole(folder / "tuning.json", json.dumps(results, indent=1))
    write_whole(folder / "tuning.html", page(results, landscapes))


def tuned(name, head_dim, length, arguments):
    """The rows of one family."""
    attention = problem(families.ALL[name](length, arguments.device), head_dim, length, arguments.tokens, arguments.device)
    begin = time.monotonic()
    found = flashspan.tune([attention], backward="backward" in arguments.directions)
    seconds = time.monotonic() - begin
    return [row_of(name, head_dim, length, result, seconds, again(attention, result, arguments.rounds))
            for result in found if result.direction in arguments.directions]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=16384, help="batch * length")
    for name, default, kind in (("--head-dims", "64,128", int), ("--lengths", "8192", int),
                                ("--families", ",".join(families.ALL), str), ("--directions", "forward,backward", str)):
        parser.add_argument(name, default=default, type=lambda text, kind=kind: [kind(part) for part in text.split(",")])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else "CPU"
    results = {"machine": {"device": device, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
                           "command": " ".join(sys.argv)}, "rows": [], "summary": summary_of([])}
    end, longest, landscapes = time.monotonic() + 60 * arguments.minutes, 0.0, []
    for head_dim, length, name in itertools.product(arguments.head_dims, arguments.lengths, arguments.families):
        begin = time.monotonic()
        if begin + longest > end:
            print(f"{name} d{head_dim} {length}: no time left", flush=True)
            continue
        rows = tuned(name, head_dim, length, arguments)
        results["rows"] += rows
        for row in rows:
            print(f"{name} d{head_dim} {length} {row['direction']}: {row['best']}, {row['gain']:.3f} times the default, "
                  f"rank {row['rank_of_best']}, {row['seconds']:.0f} s", flush=True)
        write(results, landscapes, arguments.out)
        longest = max(longest, time.monotonic() - begin)
    print(json.dumps(results["summary"]))
    return 1 if results["summary"]["wrong"] else 0


if __name__ == "__main__":
    os.environ.setdefault("FLASHSPAN_TUNING_FILE", tempfile.mkdtemp() + "/tuning.jsonl")  # defaults are the built-in ones
    import flashspan

    sys.exit(main())
