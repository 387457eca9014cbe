#!/usr/bin/env python3
"""Load and fault tests of caches, compile service and shared store, with real processes and NVRTC; no GPU needed.

    tests/faults/run.py --processes 32 --kernels 16 --kills 200

A reference is made first, by one process alone. In everything that follows, no process may serve another binary than the
reference's for a kernel, and none may fail. Prints a line of figures for each part; exit code 1 at the first fault, 77 where
there is no NVRTC.
"""

import argparse
import collections
import http.client
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

FAILED = "failed"


class Fault(Exception):
    """Something that must not happen."""


class Machine:
    """Where the programs are, and the folder that everything happens in."""

    def __init__(self, build, folder, kernels):
        self.command = build / "tools" / "flashspan"
        self.client = build / "tests" / "kernel_client"
        self.fail_file_calls = build / "tests" / "libfail_file_calls.so"
        self.jump_clock = build / "tests" / "libjump_clock.so"
        self.folder = folder
        self.kernels = kernels
        self.reference = {}  # kernel number -> (key, hash)

    def path(self, name):
        return str(self.folder / name)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLASHSPAN_")}
        return kept | {"FLASHSPAN_LOG": "warning"} | more

    def start_client(self, cache, seed, kernels=None, **environment):
        return subprocess.Popen([self.client, cache, str(kernels or self.kernels), str(seed)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(**environment))

    def run_client(self, cache, seed, **environment):
        return self.finish(self.start_client(cache, seed, **environment))

    def finish(self, client):
        """Where the kernels of a client came from, how many of each; a fault if one failed or is wrong."""
        out, errors = client.communicate(timeout=3600)
        if client.returncode != 0:
            raise Fault(f"a client ended with {client.returncode}:\n{out}{errors}")
        sources = collections.Counter()
        for number, key, source, binary in map(str.split, out.splitlines()):
            self.check(int(number), key, binary)
            sources[source] += 1
        if sum(sources.values()) != self.kernels:
            raise Fault(f"a client got {sum(sources.values())} of {self.kernels} kernels")
        return sources, errors

    def check(self, number, key, binary):
        expected_key, expected_binary = self.reference.setdefault(number, (key, binary))
        if key != expected_key:
            raise Fault(f"kernel {number} has key {key} instead of {expected_key}")
        if binary not in (expected_binary, "none"):
            raise Fault(f"kernel {number} is {binary} instead of {expected_binary}")

    def check_lines(self, out):
        """The whole lines of a client that was killed."""
        for line in out.splitlines(keepends=True):
            parts = line.split()
            if not line.endswith("\n") or len(parts) < 4 or parts[1] == FAILED:
                continue
            self.check(int(parts[0]), parts[1], parts[3])

    def verify(self, cache, may_be_damaged=False):
        """Every entry of a cache, against the reference. How many there are."""
        result = subprocess.run([self.command, "cache", "verify", "--cache-dir", cache], capture_output=True, text=True,
                                env=self.environment())
        if result.returncode != 0 and not may_be_damaged:
            raise Fault(f"{cache} is damaged:\n{result.stdout}{result.stderr}")
        return len(list(pathlib.Path(cache).glob("??/*.fse")))


class Service:
    """A compile service as a process of its own."""

    def __init__(self, machine, name, *options, **environment):
        self.address = f"unix:{machine.path(name)}.sock"
        self.arguments = [machine.command, "serve", "--listen", self.address, "--cache-dir", machine.path(name), *options]
        self.environment = machine.environment(**environment)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=self.environment)
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            raise Fault(f"the service does not start: {line}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def metrics(self):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.address.removeprefix("unix:"))
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[:1] != "#"}

    def stop(self):
        """Its peak of memory, in MB, before it is told to stop; a fault if it does not end well."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        self.process.terminate()
        if self.process.wait(timeout=120) != 0:
            raise Fault(f"the service ended with {self.process.returncode}")
        self.process.stdout.close()
        return peak


def report(part, figures):
    print(f"{part}: " + ", ".join(f"{value} {name}" for name, value in figures.items()), flush=True)


def make_reference(machine):
    begun = time.monotonic()
    sources, _ = machine.run_client(machine.path("reference"), 0)
    seconds = time.monotonic() - begun
    if sources != {"built": machine.kernels}:
        raise Fault(f"a cold cache gave {sources}")
    report("reference", {"kernels built": machine.kernels, "s": round(seconds, 1)})


def one_cold_cache(machine, processes):
    """Many processes, one cold folder, no service."""
    cache = machine.path("shared-folder")
    begun = time.monotonic()
    clients = [machine.start_client(cache, seed) for seed in range(processes)]
    sources = sum((machine.finish(client)[0] for client in clients), collections.Counter())
    if machine.verify(cache) != machine.kernels:
        raise Fault("entries are missing from the folder")
    if sources["built"] != machine.kernels:
        raise Fault(f"{sources['built']} compiles of {machine.kernels} kernels")
    report(f"{processes} processes on one cold folder",
           {"built": sources["built"], "from disk": sources["disk"], "s": round(time.monotonic() - begun, 1)})


def one_service(machine, processes):
    """Many processes, each with a cold cache of its own, and one service. They wait as long as it takes: on a machine that
    is slow enough, clients of the usual patience compile for themselves, and add to what makes it slow."""
    service = Service(machine, "service")
    begun = time.monotonic()
    patient = {"FLASHSPAN_SERVICE": service.address, "FLASHSPAN_SERVICE_TIMEOUT": "3000"}
    clients = [machine.start_client(machine.path(f"client{seed}"), seed, **patient) for seed in range(processes)]
    sources = sum((machine.finish(client)[0] for client in clients), collections.Counter())
    seconds = time.monotonic() - begun
    compiles = int(service.metrics()['flashspan_compiles_total{result="ok"}'])
    if compiles != machine.kernels:
        raise Fault(f"{compiles} compiles of {machine.kernels} kernels")
    if sources != {"service": processes * machine.kernels}:
        raise Fault(f"kernels came from elsewhere: {sources}")
    report(f"{processes} processes with cold caches and one service",
           {"served": sources["service"], "compiles": compiles, "s": round(seconds, 1),
            "MB at most in the service": round(service.stop())})


def kills(machine, count, seed):
    """Clients and the service killed at random points, all over one folder for clients and one for the service."""
    choose = random.Random(seed)
    service = Service(machine, "killed-service")
    cache = machine.path("killed-clients")
    killed = collections.Counter()
    clients = []
    while sum(killed.values()) < count:
        while len(clients) < 4:
            # A folder that now and then is gone keeps compiles, and with them writers, going.
            if choose.random() < 0.1:
                shutil.rmtree(choose.choice([cache, machine.path("killed-service")]), ignore_errors=True)
            clients.append(machine.start_client(cache, choose.randrange(1 << 30), FLASHSPAN_SERVICE=service.address))
        time.sleep(choose.random() * 0.4)
        if choose.random() < 0.3:
            service.kill()
            killed["services"] += 1
            service.start()
        else:
            client = clients.pop(choose.randrange(len(clients)))
            client.kill()
            machine.check_lines(client.communicate()[0])
            killed["clients"] += client.returncode == -signal.SIGKILL
        for client in [client for client in clients if client.poll() is not None]:
            clients.remove(client)
            machine.finish(client)
    for client in clients:
        machine.finish(client)
    machine.verify(cache)
    machine.verify(machine.path("killed-service"))
    fresh, _ = machine.run_client(machine.path("after-kills"), 1, FLASHSPAN_SERVICE=service.address)
    if fresh != {"service": machine.kernels}:
        raise Fault(f"after the kills the service does not serve: {fresh}")
    service.stop()
    report(f"{sum(killed.values())} kills", {f"{what} killed": number for what, number in sorted(killed.items())})


def broken_disks(machine):
    """Service and client on disks that are full, cannot be written to, or fail."""
    figures = collections.Counter()

    def serve_and_check(what, service_options=None, client_cache=None, **environment):
        service = Service(machine, f"{what}-service", **(service_options or {}))
        sources, errors = machine.run_client(client_cache or machine.path(f"{what}-client"), 3,
                                             FLASHSPAN_SERVICE=service.address, **environment)
        service.kill()
        if sources != {"service": machine.kernels}:
            raise Fault(f"{what}: {sources}\n{errors}")
        figures[what] += machine.kernels

    for call, error in (("rename", 5), ("fsync", 28), ("open", 5), ("mkostemp", 28), ("flock", 37),
                        ("rename-reply", 2), ("rename-reply", 116)):
        failing = {"LD_PRELOAD": str(machine.fail_file_calls), "FAIL_CALL": call, "FAIL_ERRNO": str(error)}
        serve_and_check(f"failing {call} {error}", service_options=failing, **failing)
    if os.geteuid() == 0 and can_mount():
        for what, option in (("full", "size=64k"), ("read-only", "ro")):
            for side in ("client", "service"):
                folder = pathlib.Path(machine.path(f"{what}-{side}"))
                folder.mkdir()
                subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", folder], check=True)
            try:
                serve_and_check(what)
            finally:
                for side in ("client", "service"):
                    subprocess.run(["umount", "--lazy", machine.path(f"{what}-{side}")], check=True)
    report("broken disks", {f"kernels served on {what}": number for what, number in figures.items()})


def jumping_clocks(machine):
    """Client and service whose wall clocks are years off, another way each time that they look, and a prune by age."""
    jumping = {"LD_PRELOAD": str(machine.jump_clock)}
    service = Service(machine, "jumping-service", **jumping)
    cache = machine.path("jumping-client")
    served, _ = machine.run_client(cache, 11, FLASHSPAN_SERVICE=service.address, **jumping)
    kept, _ = machine.run_client(cache, 12, **jumping)
    prune = [machine.command, "cache", "prune", "--older-than", "1d", "--cache-dir"]
    by_right_clock = subprocess.run([*prune, cache, "--json"], env=machine.environment(), capture_output=True, check=False)
    still_kept, _ = machine.run_client(cache, 13, **jumping)
    subprocess.run([*prune, cache], env=machine.environment(**jumping), capture_output=True, check=False)
    after, _ = machine.run_client(cache, 14, FLASHSPAN_SERVICE=service.address)
    service.stop()
    if by_right_clock.returncode != 0 or sum(after.values()) != machine.kernels:
        raise Fault(f"a prune: {by_right_clock}, {after}")
    if (served, kept, still_kept) != ({"service": machine.kernels}, {"disk": machine.kernels}, {"disk": machine.kernels}):
        raise Fault(f"jumping clocks gave {served}, {kept}, {still_kept}")
    machine.verify(cache)
    report("jumping clocks", {"kernels from the service": served["service"], "from disk": kept["disk"],
                              "after a prune": sum(after.values())})


def can_mount():
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return probe.returncode == 0 and shutil.which("mount") is not None


def damaged_entries(machine, seed):
    """Bit flips, cuts and exchanged files in a cache: never served, and built anew."""
    choose = random.Random(seed)
    cache = pathlib.Path(machine.path("damaged"))
    shutil.copytree(machine.path("reference"), cache)
    entries = sorted(cache.glob("??/*.fse"))
    for index, entry in enumerate(entries):
        content = bytearray(entry.read_bytes())
        if index % 3 == 0:
            content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
            entry.write_bytes(content)
        elif index % 3 == 1:
            entry.write_bytes(content[:choose.randrange(len(content))])
        else:
            shutil.copy(entries[index - 1], entry)
    sources, _ = machine.run_client(str(cache), 4)
    if sources != {"built": machine.kernels}:
        raise Fault(f"damaged entries gave {sources}")
    machine.verify(str(cache))
    report("damaged entries", {"flipped, cut or exchanged, and built anew": machine.kernels})


def planted_entries(machine):
    """A store in which somebody exchanged every entry for a sound one of another kernel, unsigned or of another secret."""
    redis = shutil.which("redis-server") or shutil.which("valkey-server")
    if redis is None:
        print("planted entries: not tested, no redis-server", flush=True)
        return
    redis_socket = machine.path("redis.sock")
    for name in ("secret", "other"):
        pathlib.Path(machine.path(name)).write_text(name * 8)
    server = subprocess.Popen([redis, "--port", "0", "--unixsocket", redis_socket, "--save", "", "--dir", machine.folder],
                              stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(redis_socket):
            time.sleep(0.02)
        store = {"FLASHSPAN_SHARED_STORE": f"redis+unix://{redis_socket}"}
        secret = {"FLASHSPAN_SIGNING_KEY_FILE": machine.path("secret")}
        plain, _ = machine.run_client(machine.path("store-first"), 5, **store)
        shared, _ = machine.run_client(machine.path("store-second"), 6, **store)
        planted, errors = machine.run_client(machine.path("store-third"), 7, **store, **secret)
        signed, _ = machine.run_client(machine.path("store-fourth"), 8, **store, **secret)
        other = {"FLASHSPAN_SIGNING_KEY_FILE": machine.path("other")}
        stranger, _ = machine.run_client(machine.path("store-fifth"), 9, **store, **other)
        found = [dict(sources) for sources in (plain, shared, planted, signed, stranger)]
        all_of = lambda source: {source: machine.kernels}  # noqa: E731
        if found != [all_of(source) for source in ("built", "shared", "built", "shared", "built")]:
            raise Fault(f"the store gave {found}")
        if errors.count("refused, not signed") != machine.kernels:
            raise Fault(f"what was planted was not told of:\n{errors}")
        server.kill()
        server.wait()
        down, errors = machine.run_client(machine.path("store-sixth"), 10, **store)
        if down != all_of("built"):
            raise Fault(f"a store that is down gave {down}")
        report("shared store", {"kernels from another machine": shared["shared"], "unsigned refused": planted["built"],
                                "of another secret refused": stranger["built"],
                                "built with the store down": down["built"]})
    finally:
        server.kill()


PARTS = {
    "one-cold-cache": lambda machine, options: one_cold_cache(machine, options.processes),
    "one-service": lambda machine, options: one_service(machine, options.processes),
    "damaged-entries": lambda machine, options: damaged_entries(machine, options.seed),
    "planted-entries": lambda machine, options: planted_entries(machine),
    "broken-disks": lambda machine, options: broken_disks(machine),
    "jumping-clocks": lambda machine, options: jumping_clocks(machine),
    "kills": lambda machine, options: kills(machine, options.kills, options.seed),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be given several times")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsp-", dir="/tmp") as folder:
        machine = Machine(options.build, pathlib.Path(folder), options.kernels)
        probe = subprocess.run([machine.client, machine.path("probe"), "1", "0"], capture_output=True, text=True,
                               env=machine.environment(), check=False)
        if probe.returncode != 0 and "nvrtc" in probe.stdout.lower():
            print(f"not tested: {probe.stdout}")
            return 77
        try:
            make_reference(machine)
            for part in options.only or PARTS:
                PARTS[part](machine, options)
        except Fault as fault:
            print(f"FAULT: {fault}")
            return 1
    print("no kernel was wrong, none was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
