"""What train_gpt.py measured as JSON, Markdown and a plot."""

import json
import statistics

from result_files import write_whole

NUDGED = "flex_nudged"
AS_FAR = 2.0  # distances of two pairs of equal trainings: either may be the larger by chance


def engine_of(group, name):
    return next((engine for engine in group["engines"] if engine["engine"] == name), None)


def losses_of(group, name):
    engine = engine_of(group, name)
    return [] if engine is None or engine["failure"] else engine["losses"]


def mean_distance(ours, theirs):
    return statistics.mean(abs(a - b) for a, b in zip(ours, theirs))


def loss_gap(group):
    """(distance of Flashspan's losses from FlexAttention's, distance of FlexAttention's from its own after a nudge), means over
    all steps; None where one of them is missing. Batches, buckets' rotations and dropped tokens are the same: what differs is
    rounding, which training amplifies."""
    ours, theirs, after_nudge = (losses_of(group, name) for name in ("flashspan", "flex", NUDGED))
    if not ours or not theirs or not after_nudge:
        return None
    return mean_distance(ours, theirs), mean_distance(after_nudge, theirs)


def is_right(group):
    ours = engine_of(group, "flashspan")
    if ours is not None and ours["failure"]:
        return False
    gap = loss_gap(group)
    return gap is None or gap[0] <= AS_FAR * gap[1]


def ratio(group, name):
    """Median step time of `name` by Flashspan's."""
    ours, theirs = engine_of(group, "flashspan"), engine_of(group, name)
    if ours is None or theirs is None or not ours["median_step_s"] or not theirs["median_step_s"]:
        return None
    return theirs["median_step_s"] / ours["median_step_s"]


def lines_of_group(group):
    """Rows of the Markdown table, and a last line in words."""
    rows = []
    for engine in group["engines"]:
        size = f"| {group['length']} | {group['pattern']} | {group['batch']} | {engine['engine']} "
        if engine["failure"]:
            rows.append(size + f"| failed: {engine['failure']} | | | | |")
            continue
        shown = ratio(group, engine["engine"])
        step = "" if engine["median_step_s"] is None else f"{1000 * engine['median_step_s']:.1f}"
        first, last = engine["losses"][0], engine["losses"][-1]
        rows.append(size + f"| {len(engine['losses'])} | {engine['first_step_s']:.2f} | {step} "
                    f"| {'' if shown is None else f'{shown:.2f}'} | {first:.3f} -> {last:.3f} |")
    gap = loss_gap(group)
    words = [f"{ratio(group, name):.2f} times as fast as {name}" for name in ("flex", "sdpa") if ratio(group, name)]
    if gap is not None:
        words.append(f"losses apart by {gap[0]:.5f} in the mean of all steps, FlexAttention's after a nudge by {gap[1]:.5f}")
    return [*rows, f"{group['length']} {group['pattern']}: {', '.join(words) or 'nothing to compare'}"]


def markdown(result):
    settings = result["settings"]
    lines = ["# Training a small GPT under sparse masks", "",
             f"{result['device']}, torch {result['torch']}. {settings['layers']} layers, {settings['width']} wide, "
             f"{settings['heads']} heads, bf16 autocast, {settings['tokens']} tokens a step, {settings['buckets']} buckets, "
             f"{settings['dropped']:.0%} of queries and keys dropped, {settings['documents']} documents.", "",
             "Engines take turns, a step each, on the same batches. `sdpa` is dense causal attention: another function, and the "
             "speed that sparsity is measured by. `flex_nudged` starts from weights that are moved by no more than rounding to "
             "bf16 moves them: how far its losses are from `flex`'s is what rounding alone does. A step is forward, backward and "
             "optimizer, with block masks, sorting and planning; the first one compiles.", "",
             "| length | pattern | batch | engine | steps | first step, s | median step, ms | by Flashspan's | loss |",
             "|---|---|---|---|---|---|---|---|---|"]
    words = []
    for group in result["groups"]:
        *rows, summary = lines_of_group(group)
        lines += rows
        words.append(f"* {summary}")
    return "\n".join([*lines, "", *words]) + "\n"


def plot(result, path):
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    groups = result["groups"]
    figure = Figure(figsize=(5 * len(groups), 7), layout="constrained")
    axes = figure.subplots(2, len(groups), squeeze=False)
    for (curves, bars), group in zip(axes.T, groups):
        for engine in group["engines"]:
            if engine["failure"] is None:
                curves.plot(engine["losses"], label=engine["engine"], linewidth=1)
        curves.set(title=f"{group['pattern']}, {group['length']} tokens", xlabel="step", ylabel="loss")
        curves.legend()
        timed = [engine for engine in group["engines"] if engine["median_step_s"]]
        bars.bar([engine["engine"] for engine in timed], [1000 * engine["median_step_s"] for engine in timed])
        bars.set(ylabel="median step, ms")
    figure.savefig(path, dpi=110)


def write(result, folder):
    write_whole(folder / "train-gpt.json", json.dumps(result, indent=1))
    write_whole(folder / "train-gpt.md", markdown(result))
