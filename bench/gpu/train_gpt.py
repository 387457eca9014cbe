#!/usr/bin/env python3
"""Trains a small GPT under sparse masks, with Flashspan, FlexAttention and dense SDPA: step times and loss curves.

Usage: python3 bench/gpu/train_gpt.py --out folder [--minutes 20] [--steps 300] [--lengths 8192,16384]
       [--patterns documents,hash,qk] [--engines flashspan,flex,sdpa] [--tokens 65536] [--layers 12 --width 768 --heads 12]

SCFA's language-model setting (12 layers of 768, head dim 64, bf16 autocast, AdamW) over a synthetic stream that can be learned.
For each length and pattern the engines train copies of one model on the same batches and with the same buckets and dropped
tokens, a step each in turn, in an order drawn anew each step, so that a warm device slows all alike. Everything that an engine
has to do in a step counts: FlexAttention's block masks, sorting and compaction, planning of tiles. The first step, which
compiles, is told apart.

What losses may differ by is measured, too: beside Flashspan and FlexAttention a third model is trained, `flex_nudged`, with
FlexAttention, from weights that are moved by no more than rounding to bf16 moves them.

The time of --minutes is divided among the lengths and patterns that are still to come; a group ends early rather than late, and
none begins after the time. Prints a line and writes train-gpt.json and .md into the folder every quarter of a minute and after
each group; in the end train-gpt.png too, where matplotlib is installed. An engine that fails is noted and left out; exit code 1
if Flashspan is the one, or its losses are further from FlexAttention's than those of `flex_nudged` allow. `--device cpu` tries
the program itself, not the speed of anything.
"""

import argparse
import copy
import pathlib
import random
import statistics
import sys
import time

import gpt_report
import torch
from gpt import Gpt, TokenStream
from gpt_attention import ENGINES, PATTERNS, Settings, attention_of_layers

# With a warm-up of 20 steps, losses jumped by 0.5 and more in single steps, which amplified roundings by four orders of
# magnitude: curves after that tell nothing of what is computed.
LEARNING_RATE, WARM_UP = 4e-4, 100
NUDGE = 2.0**-9  # of a weight: half of what lies between two neighbouring numbers of bf16
SECONDS_BETWEEN_REPORTS = 15


class Trainee:
    """One engine's copy of the model, and what was measured of it."""

    def __init__(self, name, pattern, model, settings):
        self.name, self.pattern, self.settings, self.model = name, pattern, settings, model
        self.engine = "flex" if name == gpt_report.NUDGED else name
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.losses, self.seconds, self.failure = [], [], None

    def step(self, number, tokens, doc):
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (number + 1) / WARM_UP)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            loss = self.model.loss(tokens, attention_of_layers(self.pattern, self.engine, doc, number, self.settings))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed_step(self, number, tokens, doc):
        begin = time.perf_counter()
        try:
            self.losses.append(self.step(number, tokens, doc))
        except Exception as failure:  # another project's engine may fail in any way; ours is reported below
            self.failure = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
            self.model = self.optimizer = None
            return
        self.seconds.append(time.perf_counter() - begin)

    def record(self):
        return {"engine": self.name, "failure": self.failure, "losses": self.losses,
                "first_step_s": self.seconds[0] if self.seconds else None, "step_s": self.seconds[1:],
                "median_step_s": statistics.median(self.seconds[1:]) if len(self.seconds) > 1 else None}


def nudged(model):
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1 + NUDGE * (2 * torch.rand(weight.shape, generator=generator, device=weight.device) - 1)
    return model


def train_group(options, length, pattern, deadline):
    """All engines on one length and pattern, until --steps or the deadline. After every step: the group's record so far."""
    torch.manual_seed(7)
    torch.compiler.reset()  # a new length is a new function, rather than one more of those whose number is limited
    model = Gpt(options.layers, options.width, options.heads, options.vocabulary, length).to(options.device)
    settings = Settings(options.buckets, options.dropped)
    trainees = [Trainee(engine, pattern, copy.deepcopy(model), settings) for engine in options.engines]
    if {"flashspan", "flex"} <= set(options.engines):
        trainees.append(Trainee(gpt_report.NUDGED, pattern, nudged(copy.deepcopy(model)), settings))
    stream = TokenStream(max(1, options.tokens // length), length, options.documents, options.vocabulary,
                         torch.device(options.device))
    draw = random.Random(0)
    for number in range(options.steps):
        tokens, doc = stream.step(number)
        if options.device == "cuda":
            torch.cuda.synchronize()
        for trainee in draw.sample(trainees, len(trainees)):
            if trainee.failure is None:
                trainee.timed_step(number, tokens, doc)
        yield {"length": length, "pattern": pattern, "batch": stream.batch, "documents": options.documents,
               "engines": [trainee.record() for trainee in trainees]}
        if time.monotonic() > deadline:
            break


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lengths", type=lambda text: [int(part) for part in text.split(",")], default=[8192, 16384])
    for name, known in (("patterns", PATTERNS), ("engines", ENGINES)):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known))
    for name, default in (("tokens", 65536), ("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 1024),
                          ("documents", 8), ("buckets", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropped", type=float, default=0.5, help="share of queries and of keys that `qk` drops")
    options = parser.parse_args(arguments)
    for name, known in (("patterns", PATTERNS), ("engines", ENGINES)):
        for given in getattr(options, name):
            if given not in known:
                parser.error(f"--{name}: got {given}; takes {', '.join(known)}")
    return options


def report(result, folder):
    gpt_report.write(result, folder)
    group = result["groups"][-1]
    steps = max(len(engine["losses"]) for engine in group["engines"])
    print(f"{gpt_report.lines_of_group(group)[-1]} ({steps} steps)", flush=True)


def main(arguments=None):
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    groups = [(length, pattern) for length in options.lengths for pattern in options.patterns]
    result = {"torch": torch.__version__,
              "device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
              "settings": {name: value for name, value in vars(options).items() if name != "out"}, "groups": []}
    for done, (length, pattern) in enumerate(groups):
        if done and time.monotonic() > end:
            print(f"{length} {pattern}: no time left", flush=True)
            continue
        deadline = time.monotonic() + (end - time.monotonic()) / (len(groups) - done)
        result["groups"].append(None)
        reported = time.monotonic()
        for result["groups"][-1] in train_group(options, length, pattern, deadline):
            if time.monotonic() > reported + SECONDS_BETWEEN_REPORTS:
                report(result, options.out)
                reported = time.monotonic()
        report(result, options.out)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    gpt_report.plot(result, options.out / "train-gpt.png")
    return 0 if all(gpt_report.is_right(group) for group in result["groups"]) else 1


if __name__ == "__main__":
    sys.exit(main())
