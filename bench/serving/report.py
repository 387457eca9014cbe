#!/usr/bin/env python3
"""How long a kernel takes to come to a process, and how much faster two cores compile than one, as JSON and a table.

    bench/serving/report.py [--device cuda] [--build build/release] [--out figures.json]

Compiles run on one core and on two in turns, `--repeat` times, and the fastest of each counts. A machine that has other work
makes them slower; of that, what compiles stood in a queue for a processor is taken off, as the kernel of the system counts it,
and both are reported, with how busy the machine was.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Bench:
    def __init__(self, options, folder):
        self.command = [options.build / "bench" / "serving" / "flashspan_bench_serving"]
        self.device, self.folder = options.device, folder

    def run(self, part, *arguments, cores=None, folder="warm"):
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        done = subprocess.run([*pinned, *self.command, part, "--device", self.device, "--folder", self.folder / folder,
                               *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)


def scaling(bench, options):
    """Seconds for the same compiles on one core and on two; the fastest of each."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return {}
    best = {}
    runs = []
    for _ in range(options.repeat):
        for count in (1, 2):
            run = bench.run("prepare", "--kernels", options.kernels, "--head-dim", 16, cores=cores[:count], folder="cold")
            run["load"] = os.getloadavg()[0]
            runs.append(run)
            best[count] = min(best.get(count, run), run, key=lambda run: run["unhindered_seconds"])
    return {"kernels": options.kernels, "on_1_core": best[1], "on_2_cores": best[2],
            "speed_up": best[1]["unhindered_seconds"] / best[2]["unhindered_seconds"], "runs": runs}


def fresh_process(bench, options):
    """The first kernel of a process, from a warm disk."""
    runs = [bench.run("first", "--kernels", 1) for _ in range(options.fresh + 1)][1:]  # the first one fills the cache
    assert all(run["from"] == "disk" for run in runs), runs
    return {"first_kernel_ms": statistics.median(run["first_kernel_ms"] for run in runs),
            "open_device_ms": statistics.median(run["open_device_ms"] for run in runs), "processes": len(runs)}


def table(figures):
    hits = figures["hits"]
    rows = [("from disk", hits["disk_hit_ms"]["median"], "ms", hits["disk_hit_ms"]["p99"]),
            ("from memory", hits["memory_hit_ns"]["median"] / 1e3, "us", hits["memory_hit_ns"]["p99"] / 1e3)]
    if "loaded_hit_ns" in hits:
        rows.append(("on the device already", hits["loaded_hit_ns"]["median"] / 1e3, "us", hits["loaded_hit_ns"]["p99"] / 1e3))
    rows += [("from a service of this host", hits["service_hit_ms"]["median"], "ms", hits["service_hit_ms"]["p99"]),
             ("the same, and kept on disk", hits["service_hit_kept_on_disk_ms"]["median"], "ms",
              hits["service_hit_kept_on_disk_ms"]["p99"])]
    lines = ["| a kernel | median | 99 of 100 |", "|---|---|---|"]
    lines += [f"| {name} | {median:.2f} {unit} | {most:.2f} {unit} |" for name, median, unit, most in rows]
    first = figures["fresh_process"]
    lines.append(f"| the first one of a process, from disk | {first['first_kernel_ms']:.2f} ms | |")
    if compiles := figures["scaling"]:
        lines.append(f"\n{compiles['kernels']} compiles, {compiles['speed_up']:.2f} times as fast on two cores:")
        lines += [f"{name}: {run['unhindered_seconds']:.1f} s, and {run['seconds']:.1f} s beside the machine's other work"
                  for name, run in (("one core", compiles["on_1_core"]), ("two cores", compiles["on_2_cores"]))]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--device", choices=["none", "cuda"], default="none")
    parser.add_argument("--kernels", type=int, default=100, help="compiled on one core and on two")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--fresh", type=int, default=9, help="processes whose first kernel is timed")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        figures = {"date": datetime.date.today().isoformat(), "machine": platform.machine(), "cores": os.cpu_count(),
                   "load_before": os.getloadavg(), "device": options.device}
        figures["hits"] = bench.run("hits")
        figures["fresh_process"] = fresh_process(bench, options)
        figures["scaling"] = scaling(bench, options)
        figures["load_after"] = os.getloadavg()
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
