"""Times flashspan_bench_gpu beside PyTorch's engines on one device, in one run, and checks its results.

Usage: python3 bench/gpu/compare.py --bench path/to/flashspan_bench_gpu --out folder
       [--directions forward,backward] [--head-dims 64,128] [--lengths 8192,32768] [--families causal,document]
       [--forms plain,bounds] [--engines cudnn,fa2,flex] [--rounds 5] [--parts times,checks,host,pairs,plans]

Writes gpu.json, gpu.md and, where matplotlib is installed, gpu.png into the folder, anew after each mask. Parts:
  times   every family, ours beside the engines on the same inputs, rounds in turn; results compared
  checks  every family against binary64 attention on a small problem
  host    host time of a warm forward
  pairs   a mask that hides nothing beside none; short documents beside long ones
  plans   planning alone beside torch's compiled create_block_mask (slow: up to half a minute a mask)
A forward or backward of ours includes planning its tiles from the mask's data, each time; FlexAttention's block mask is
made beforehand and not counted. Exit code 1 if a result of ours is off or missing; an engine of torch that fails is
noted in its row. `--device cpu` tries the program itself, not the speed of anything.
"""

import argparse
import json
import math
import pathlib
import random
import shlex
import statistics
import sys
import tempfile
import time

import accuracy
import families
import ours
import peers
import report
import torch

HIDDEN = 4096  # heads * head dim of the timed problems
ROUND_MS = 30  # a round is at least this long, so that waiting for its end does not count
DISAGREES = 1e-2  # relative error past which one of two bf16 results is wrong
GRADIENTS = ("dq", "dk", "dv")


def interleaved(engines, direction, rounds):
    """Milliseconds a launch in every round of every engine. They take turns, as a warm device slows down, in an order
    drawn anew each round: who comes after an engine that draws little power finds a higher clock."""
    launches = {}
    for name, engine in engines.items():
        engine.round_ms(direction, 1)
        launches[name] = min(1000, math.ceil(ROUND_MS / engine.round_ms(direction, 2)))
    times = {name: [] for name in engines}
    draw = random.Random(0)
    for _ in range(rounds):
        for name in draw.sample(list(engines), len(engines)):
            engines[name].round_ms(direction, 1)  # the device has just changed hands
            times[name].append(engines[name].round_ms(direction, launches[name]))
    return times


def median_ratio(theirs, mine):
    """Our speed by theirs."""
    return statistics.median(a / b for a, b in zip(theirs, mine))


class Size:
    """Shape of a timed problem."""

    def __init__(self, head_dim, length, tokens):
        self.head_dim, self.length, self.batch, self.heads = head_dim, length, max(1, tokens // length), HIDDEN // head_dim

    def options(self):
        return {"batch": self.batch, "heads": self.heads, "length": self.length, "head_dim": self.head_dim}

    def tensor_shape(self):
        return self.batch, self.heads, self.length, self.head_dim

    def flops(self, direction, density):
        pairs = self.batch * self.heads * self.length**2 * density
        return (4 if direction == "forward" else 10) * self.head_dim * pairs


class Comparison:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.backward = "backward" in arguments.directions
        self.results = {"machine": machine(arguments.device), "directions": arguments.directions,
                        "peers": arguments.engines, "times": [], "checks": [], "host": [], "pairs": [], "plans": []}

    def add(self, part, row):
        """Prints and keeps a row, so that a run that is cut short leaves what it has."""
        self.results[part].append(row)
        print(json.dumps({"part": part, **row}), flush=True)
        (self.arguments.out / "gpu.json").write_text(
            json.dumps(self.results | {"geometric_means": report.geometric_means(self.results["times"])}, indent=1))
        (self.arguments.out / "gpu.md").write_text(report.markdown(self.results))

    def start(self, form, name, size, **options):
        """A process of ours; several start side by side, and beside the engines' own compiling."""
        return ours.Ours(self.arguments.bench, form, self.folder / name, device=self.arguments.device, rounds=0,
                         **size.options(), **options)

    # --- times ---

    def times(self):
        for head_dim in self.arguments.head_dims:
            for length in self.arguments.lengths:
                size = Size(head_dim, length, self.arguments.tokens)
                inputs = self.make_inputs(size)
                for name in self.arguments.families:
                    self.add("times", self.time_family(families.ALL[name](length, self.arguments.device), size, inputs))

    def make_inputs(self, size):
        generator = torch.Generator(self.arguments.device).manual_seed(size.head_dim)
        inputs = {}
        for name in ("q", "k", "v", "do") if self.backward else ("q", "k", "v"):
            inputs[name] = torch.randn(size.tensor_shape(), generator=generator, device=self.arguments.device,
                                       dtype=torch.bfloat16)
            ours.write_raw(self.folder / name, inputs[name])
        return {"do": None, **inputs}

    def time_family(self, family, size, inputs):
        forms = family.form_names(self.arguments.forms)
        row = {"family": family.name, "head_dim": size.head_dim, "length": size.length, "batch": size.batch,
               "heads": size.heads, "wanted_forms": self.arguments.forms, "engines": {}, "errors": {}, "agrees": {},
               "ratios": {}}
        servers = {form: self.start(family.form(form), form, size, inputs=self.folder, results=self.folder / form,
                                    serve=True, forward_only=not self.backward) for form in forms}
        try:
            row["density"] = family.density(size.length, self.arguments.device)
            engines = self.make_peers(family, inputs, row["engines"])
            for form, server in servers.items():
                self.take_server(form, server, size, engines, row)
            running = {form: server for form, server in servers.items() if "failed" not in row["engines"][form]}
            for direction in self.arguments.directions:
                self.take_times(direction, running, engines, size, row)
        finally:
            for server in servers.values():
                server.__exit__()
        return row

    def make_peers(self, family, inputs, engines):
        made = {}
        for engine in self.arguments.engines:
            if not peers.Peer.takes(engine, family):
                continue
            try:
                made[engine] = peers.Peer(engine, family, inputs, self.backward)
                engines[engine] = {"cold_s": made[engine].cold_s}
            except Exception as problem:  # an engine that this torch lacks is a note, not the end of the run
                engines[engine] = {"failed": repr(problem)[:300]}
        if self.arguments.device != "cpu":
            torch.cuda.empty_cache()
        return made

    def take_server(self, form, server, size, engines, row):
        """Facts of a server that is ready, and how far its results are from the engines'."""
        try:
            line = server.ready()
        except ours.BenchError as problem:
            row["engines"][form] = {"failed": str(problem)}
            row["agrees"][form] = False
            return
        row["engines"][form] = {"mask": line["mask"]}
        for direction in self.arguments.directions:
            row["engines"][form] |= {f"{direction}_kernel": line[direction],
                                     f"{direction}_lowering": line[direction]["lowering"]}
        row["errors"][form] = {peer: {} for peer in engines}
        for name in ("out", *GRADIENTS) if self.backward else ("out",):
            got = ours.read_raw(self.folder / form / name, torch.bfloat16, size.tensor_shape()).to(self.arguments.device)
            for peer, engine in engines.items():
                row["errors"][form][peer][name] = accuracy.relative_error(got, engine.results[name])
        row["agrees"][form] = all(error <= DISAGREES for of in row["errors"][form].values() for error in of.values())

    def take_times(self, direction, servers, engines, size, row):
        times = interleaved({**servers, **engines}, direction, self.arguments.rounds)
        for name, rounds in times.items():
            ms = statistics.median(rounds)
            row["engines"][name][direction] = {
                "ms": ms, "tflops": size.flops(direction, row["density"]) / ms / 1e9, "rounds_ms": rounds}
        row["ratios"][direction] = {form: {peer: median_ratio(times[peer], times[form]) for peer in engines}
                                    for form in servers}

    # --- the other parts ---

    def checks(self):
        for head_dim in self.arguments.head_dims:
            for row in accuracy.check(self.arguments.bench, head_dim, self.arguments.forms, self.arguments.device,
                                      self.folder / f"check.{head_dim}", self.backward):
                self.add("checks", row)

    def host(self):
        for make in (families.full, families.causal, families.causal_document, families.random_eviction):
            family = make(128, self.arguments.device)
            row = {"family": family.name}
            try:
                line = ours.figures(self.arguments.bench, family.plain, self.folder / "host", device=self.arguments.device,
                                    batch=1, heads=1, length=128, head_dim=128, rounds=0, host_rounds=9, forward_only=True)
                row |= {"host_us": line["host_us"], "host_shared_plan_us": line["host_shared_plan_us"],
                        "lowering": line["forward"]["lowering"]}
            except ours.BenchError as problem:
                row["failed"] = str(problem)
            self.add("host", row)

    def pairs(self):
        for head_dim in self.arguments.head_dims:
            for length in self.arguments.lengths:
                size = Size(head_dim, length, self.arguments.tokens)
                self.pair(size, families.hides_nothing(length, self.arguments.device), "plain",
                          families.full(length, self.arguments.device))
            size = Size(head_dim, self.arguments.tokens, self.arguments.tokens)
            short, long = (families.causal_document(size.length, self.arguments.device, documents)
                           for documents in (short_documents(size.length), long_documents(size.length)))
            short.name, long.name = "causal documents of 128 to 1024", "causal documents of 8192"
            for form in self.arguments.forms:
                self.pair(size, short, form, long)

    def pair(self, size, one, form, other):
        """Throughput of one mask by that of another, both in the same form."""
        row = {"mask": one.name, "form": form, "against": other.name, "head_dim": size.head_dim, "length": size.length}
        with (self.start(one.form(form), "one", size, serve=True, forward_only=True) as mine,
              self.start(other.form(form), "other", size, serve=True, forward_only=True) as theirs):
            density, other_density = (family.density(size.length, self.arguments.device) for family in (one, other))
            try:
                row["lowering"] = [server.ready()["forward"]["lowering"] for server in (mine, theirs)]
                times = interleaved({"mine": mine, "theirs": theirs}, "forward", self.arguments.rounds)
            except ours.BenchError as problem:
                self.add("pairs", row | {"failed": str(problem)})
                return
        speed = lambda ms, visible: size.flops("forward", visible) / ms / 1e9
        self.add("pairs", row | {"tflops": speed(statistics.median(times["mine"]), density),
                                 "against_tflops": speed(statistics.median(times["theirs"]), other_density),
                                 "ratio": median_ratio(times["theirs"], times["mine"]) * density / other_density})

    def plans(self):
        """Masks whose tiles are settled by analysis (the first two) and pair by pair (the last)."""
        from triton.testing import do_bench
        compiled = torch.compile(torch.nn.attention.flex_attention.create_block_mask)
        for length in self.arguments.lengths:
            for make in (families.causal, families.causal_document, families.hash_sparse):
                family = make(length, self.arguments.device)
                line = ours.figures(self.arguments.bench, family.plain, self.folder / "plan", batch=1, heads=1,
                                    length=length, head_dim=128, rounds=0, plan_rounds=9, forward_only=True)
                torch_ms = do_bench(lambda: compiled(family.predicate, None, None, length, length, device="cuda"),
                                    return_mode="median")
                self.add("plans", {"family": family.name, "length": length, "plan_us": line["plan_us"],
                                   "torch_us": 1e3 * torch_ms})

    def succeeded(self):
        """Whether every result of ours is there and right."""
        return (all(row["ok"] for row in self.results["checks"])
                and all(all(row["agrees"].values()) for row in self.results["times"])
                and not any("failed" in row for part in ("host", "pairs") for row in self.results[part]))


def short_documents(tokens):
    """Documents of 128 to 1024 tokens; the last one ends where the tokens do."""
    draw, ends = random.Random(0), [0]
    while ends[-1] < tokens:
        ends.append(min(tokens, ends[-1] + draw.randint(128, 1024)))
    return families.Documents.of_lengths([end - start for start, end in zip(ends, ends[1:])])


def long_documents(tokens):
    length = min(8192, tokens)
    return families.Documents.of_lengths([length] * (tokens // length))


def machine(device):
    return {"device": "CPU" if device == "cpu" else torch.cuda.get_device_name(), "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(), "date": time.strftime("%Y-%m-%d"),
            "command": shlex.join(["compare.py", *sys.argv[1:]])}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_list(name, default, allowed=None):
        def parse(text):
            items = [item for item in text.split(",") if item]
            unknown = [item for item in items if allowed and item not in allowed]
            if unknown:
                raise argparse.ArgumentTypeError(f"got {','.join(unknown)}; takes {','.join(allowed)}")
            return items if allowed else [int(item) for item in items]
        parser.add_argument(name, type=parse, default=parse(default))

    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    add_list("--directions", "forward,backward", ("forward", "backward"))
    add_list("--head-dims", "64,128")
    add_list("--lengths", "8192,32768")
    add_list("--families", ",".join(families.ALL), tuple(families.ALL))
    add_list("--forms", "plain,bounds", report.OURS)
    add_list("--engines", "cudnn,fa2,flex", peers.ENGINES)
    add_list("--parts", "times,checks,host,pairs", ("times", "checks", "host", "pairs", "plans"))
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        comparison = Comparison(arguments, pathlib.Path(name))
        for part in arguments.parts:
            start = time.time()
            getattr(comparison, part)()
            print(f"{part}: {time.time() - start:.0f} s", flush=True)
    try:
        report.plot(comparison.results, arguments.out / "gpu.png")
    except ImportError:
        print("no plot: matplotlib is not installed")
    return 0 if comparison.succeeded() else 1


if __name__ == "__main__":
    sys.exit(main())
