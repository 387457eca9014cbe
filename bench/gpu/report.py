"""The comparison as Markdown and as a plot."""

import math

OURS = ("plain", "bounds")


def geometric_means(rows):
    """Of our speed by each peer's, for each (head dim, length, direction, form, peer). A family without bounds counts with
    its plain form."""
    groups = {}
    for row in rows:
        for direction, ratios in row.get("ratios", {}).items():
            for form in row["wanted_forms"]:
                for peer, ratio in ratios.get(form, ratios.get("plain", {})).items():
                    group = groups.setdefault((row["head_dim"], row["length"], direction, form, peer), [])
                    group.append((ratio, row["family"]))
    return [{"head_dim": d, "length": s, "direction": direction, "form": form, "peer": peer, "families": len(group),
             "mean": math.exp(sum(math.log(ratio) for ratio, _ in group) / len(group)),
             "least": min(group)[0], "least_family": min(group)[1]}
            for (d, s, direction, form, peer), group in groups.items()]


def table(header, rows):
    return ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def time_rows(rows, direction, peers):
    for row in rows:
        size = [row["family"], row["head_dim"], row["length"], f"{row['density']:.4f}"]
        engines = row["engines"]
        for form in (form for form in OURS if form in engines):
            mine = engines[form].get(direction)
            if mine is None:
                yield [*size, form, engines[form].get("failed", "failed"), *[""] * (2 + 2 * len(peers) + 1)]
                continue
            cells = []
            for peer in peers:
                theirs = engines.get(peer, {}).get(direction)
                ratio = row["ratios"].get(direction, {}).get(form, {}).get(peer)
                cells += [f"{theirs['tflops']:.0f}", f"{ratio:.2f}"] if theirs else [
                    "failed" if "failed" in engines.get(peer, {}) else "", ""]
            errors = row["errors"].get(form, {}).values()
            error = max((max(of.values()) for of in errors), default=None)
            flag = "" if row["agrees"].get(form, True) else " OFF"
            yield [*size, form, engines[form][f"{direction}_lowering"], f"{mine['ms']:.3f}", f"{mine['tflops']:.0f}",
                   *cells, "" if error is None else f"{error:.1e}{flag}"]


def markdown(results):
    machine, rows, peers = results["machine"], results["times"], results["peers"]
    lines = [f"# Attention on {machine['device']}", "",
             f"torch {machine['torch']}, cuDNN {machine['cudnn']}, {machine['date']}; `{machine['command']}`.", "",
             "bf16, TFLOP/s on visible pairs (4 D a pair forward, 10 D backward). Medians of interleaved rounds, ours and the "
             "peers' in turn; `x`: our speed by the peer's, median over the rounds. Ours include planning from the mask's "
             "data in every launch; FlexAttention's block mask is made beforehand and not counted. `error`: largest "
             "relative Frobenius norm of our results less a peer's, over results and peers of that run."]
    for direction in results["directions"]:
        lines += ["", f"## {direction.capitalize()}"]
        header = ["mask", "D", "S", "density", "form", "lowering", "ms", "TFLOP/s"]
        for peer in peers:
            header += [peer, f"x {peer}"]
        lines += table([*header, "error"], time_rows(rows, direction, peers))
    means = geometric_means(rows)
    if means:
        lines += ["## Geometric means of our speed by a peer's"]
        lines += table(["D", "S", "direction", "form", "peer", "masks", "mean", "least", "of"],
                       [[m["head_dim"], m["length"], m["direction"], m["form"], m["peer"], m["families"],
                         f"{m['mean']:.2f}", f"{m['least']:.2f}", m["least_family"]] for m in means])
    if results["pairs"]:
        lines += ["## Two masks of ours", "", "Forward; ratio of TFLOP/s, median over interleaved rounds."]
        lines += table(["mask", "form", "against", "D", "S", "TFLOP/s", "TFLOP/s of the other", "ratio"],
                       [[p["mask"], p["form"], p["against"], p["head_dim"], p["length"],
                         *([f"{p['tflops']:.0f}", f"{p['against_tflops']:.0f}", f"{p['ratio']:.3f}"]
                           if "ratio" in p else [p["failed"], "", ""])] for p in results["pairs"]])
    if results["host"]:
        lines += ["## Host time of a warm forward", "", "B 1, H 1, S 128; 200 calls queued on one stream."]
        lines += table(["mask", "lowering", "us", "us where layers share a plan"],
                       [[h["family"], h.get("lowering", ""),
                         *([f"{h['host_us']:.1f}", f"{h['host_shared_plan_us']:.1f}"] if "host_us" in h
                           else [h["failed"], ""])] for h in results["host"]])
    if results["plans"]:
        lines += ["## Planning one mask for all heads", "", "GPU time; torch: `torch.compile(create_block_mask)`."]
        lines += table(["mask", "S", "us", "torch us"],
                       [[p["family"], p["length"], f"{p['plan_us']:.1f}", f"{p['torch_us']:.0f}"] for p in results["plans"]])
    if results["checks"]:
        lines += ["## Largest errors against binary64", "", "B 2, H 4/2, S 1000; ours / plain bf16 attention."]
        names = [name for name in ("out", "lse", "dq", "dk", "dv") if any(name in row for row in results["checks"])]
        lines += table(["mask", "form", "D", *names, ""],
                       [[c["family"], c["form"], c["head_dim"],
                         *(f"{c[name]['error']:.2e} / {c[name]['plain_bf16_error']:.2e}" if name in c else "" for name in names),
                         "ok" if c["ok"] else c.get("failed", "OFF")] for c in results["checks"]])
    return "\n".join(lines) + "\n"


def plot(results, file):
    """TFLOP/s of all engines, one panel for each head dim, length and direction."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    panels = {}
    for row in results["times"]:
        for direction in results["directions"]:
            panels.setdefault((row["head_dim"], row["length"], direction), []).append(row)
    if not panels:
        return
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(14, 4 * len(panels)), squeeze=False, layout="constrained")
    for axis, ((head_dim, length, direction), rows) in zip(axes[:, 0], panels.items()):
        names = [name for name in (*OURS, *results["peers"])
                 if any(direction in row["engines"].get(name, {}) for row in rows)]
        for i, name in enumerate(names):
            heights = [row["engines"].get(name, {}).get(direction, {}).get("tflops", 0) for row in rows]
            label = f"flashspan, {name}" if name in OURS else name
            axis.bar([x + (i - (len(names) - 1) / 2) * 0.8 / len(names) for x in range(len(rows))], heights,
                     0.8 / len(names), label=label)
        axis.set_xticks(range(len(rows)), [row["family"] for row in rows], rotation=20, ha="right")
        axis.set_ylabel("TFLOP/s on visible pairs")
        axis.set_title(f"{direction}, D {head_dim}, S {length}, {results['machine']['device']}")
        axis.legend()
    figure.savefig(file, dpi=110)
