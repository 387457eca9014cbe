#!/usr/bin/env python3
"""Checks which file may include what: the folder says which effects a file may have.

Usage: check_includes.py [ROOT]. Prints one line per fault; exit code 1 if there is any.
"""

import graphlib
import pathlib
import re
import sys
from dataclasses import dataclass

SUFFIXES = {".cpp", ".hpp", ".h", ".cuh"}

# Headers of the standard library with an effect that pure code may not have: files, clock, threads, streams.
EFFECT_HEADERS = {
    "chrono", "condition_variable", "ctime", "filesystem", "fstream", "future", "iostream", "mutex", "semaphore",
    "shared_mutex", "stop_token", "thread", "barrier", "latch", "csignal", "random",
}
C_LIBRARY_HEADERS = {
    "assert.h", "errno.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h",
}
OPERATING_SYSTEM_HEADERS = re.compile(
    r"(sys/.+|unistd|dlfcn|fcntl|elf|link|glob|sched|signal|spawn|pthread|poll|pwd|termios|netdb)(\.h)?")


@dataclass(frozen=True)
class Room:
    """A folder and what its files may include."""

    folder: str
    project: tuple = ()  # folders (or files) of ours, beside the folder itself
    external: tuple = ()  # "std" (pure), "effects", "system", or the start of a third-party header's name
    anything: bool = False


CORE = "include/flashspan/core"
API = "include/flashspan"
CODEGEN = ("codegen/mask", "codegen/kernel")
STD = ("std", "effects")
DEVICE_PARAMETERS = "templates/attention/parameters.cuh"
SCORE_GRADIENT_ARGUMENTS = "templates/attention/score_gradient_arguments.cuh"

ROOMS = (
    Room(CORE, (), ("std",)),
    Room(API, (CORE,), ("std", "dlpack/")),
    Room("core", (CORE,), ("std",)),
    Room("codegen/mask", (CORE,), ("std",)),
    Room("codegen/kernel", (CORE, "codegen/mask"), ("std",)),
    Room("templates/ptx"),
    Room("templates/tile", ("templates/ptx",)),
    Room("templates/mask", ("templates/ptx", DEVICE_PARAMETERS)),
    Room("templates/generated", ("templates/ptx", "templates/mask")),
    Room("templates/plan", ("templates/ptx", "templates/mask", "templates/generated", DEVICE_PARAMETERS)),
    Room("templates/attention", ("templates/ptx", "templates/tile", "templates/mask", "templates/generated")),
    Room("templates/lint", anything=True),
    Room("cache", (CORE,), STD + ("system", "xxhash.h")),
    Room("runtime/backend", (CORE,) + CODEGEN, ("std",)),
    Room("runtime/cuda", (CORE, "runtime/backend", DEVICE_PARAMETERS, SCORE_GRADIENT_ARGUMENTS) + CODEGEN,
         STD + ("system",)),
    Room("runtime/cpu", (CORE, "runtime/backend") + CODEGEN, STD + ("system", "llvm/", "tbb/", "oneapi/tbb")),
    Room("runtime/attention", (CORE, "cache", "runtime/backend") + CODEGEN, STD + ("nlohmann/",)),
    Room("network", (CORE, "cache"), STD + ("system", "curl/", "microhttpd.h", "hiredis/", "openssl/")),
    Room("runtime/service", (CORE, "cache", "network/network.hpp", "runtime/backend", "runtime/attention") + CODEGEN,
         STD + ("nlohmann/",)),
    Room("runtime/api", (API, CORE, "cache", "network/network.hpp", "network/plugin.h", "network/shown_address.hpp",
                         "runtime/backend", "runtime/cuda", "runtime/attention", "runtime/service") + CODEGEN,
         STD + ("system", "nlohmann/", "spdlog/")),
    Room("reports", (API, CORE), ("std", "nlohmann/")),
    Room("capi", (API, CORE, "reports"), ("std", "dlpack/", "nlohmann/")),
    Room("tools", (API, CORE, "reports"), anything=True),
    Room("python", (API, CORE, "reports"), anything=True),
    Room("bench", (API, CORE, "tools", "examples"), anything=True),
    Room("bench/serving", ("",), anything=True),  # what it times ends before the device, inside the library
    Room("examples", (API, CORE, "tools"), anything=True),
    Room("tests", ("",), anything=True),
)

# Only settings.cpp reads the environment; tests, benchmarks and device-free tools of the tests may.
ENVIRONMENT_READER = "runtime/api/settings.cpp"
ENVIRONMENT_FREE = ("tests", "bench")


def room_of(path: str):
    """The room with the longest folder that holds `path`, or None."""
    holding = [room for room in ROOMS if path.startswith(room.folder + "/")]
    return max(holding, key=lambda room: len(room.folder), default=None)


def code_of(text: str) -> str:
    """`text` without comments and string literals' contents; include lines stay as they are."""
    pattern = re.compile(
        r'R"([^()\s\\]*)\(.*?\)\1"'  # raw string
        r"|//[^\n]*|/\*.*?\*/"
        r"|^[ \t]*#[ \t]*include[^\n]*"
        r'|"(?:\\.|[^"\\\n])*"',
        re.DOTALL | re.MULTILINE)

    def replace(match):
        found = match.group(0)
        if found.lstrip().startswith("#"):
            return re.sub(r"//.*|/\*.*", "", found)
        return '""' if found[0] in 'R"' else "\n" * found.count("\n")

    return pattern.sub(replace, text)


def includes_of(code: str):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', code, re.MULTILINE)


def kind_of_external(name: str) -> str:
    """"std", "effects" or "system" for what the machine brings, else the name itself."""
    if name in EFFECT_HEADERS:
        return "effects"
    if name in C_LIBRARY_HEADERS or re.fullmatch(r"[a-z_0-9]+", name):
        return "std"
    return "system" if OPERATING_SYSTEM_HEADERS.fullmatch(name) else name


class Checker:
    def __init__(self, root: pathlib.Path):
        self.root = root
        self.files = {str(path.relative_to(root)): path for room in ROOMS
                      for path in (root / room.folder).rglob("*") if path.suffix in SUFFIXES}
        self.graph = {}
        self.faults = []

    def resolve(self, includer: str, name: str):
        """The file of ours that `name` means, or None."""
        candidates = [name, "include/" + name]
        if includer.startswith(("templates/", "tests/")):
            candidates.append("templates/" + name)
        # Programs below these folders may keep local headers beside their sources.
        if includer.startswith(("tools/", "bench/", "examples/", "tests/")):
            candidates += ["tests/" + name, "tools/" + name, str(pathlib.PurePath(includer).parent / name)]
        return next((candidate for candidate in candidates if candidate in self.files), None)

    def check_project_include(self, includer: str, room: Room, target: str):
        self.graph.setdefault(includer, set()).add(target)
        target_room = room_of(target)
        allowed = target_room == room or "" in room.project or target in room.project or \
            target_room.folder in room.project
        if not allowed:
            self.faults.append(f"{includer}: {room.folder} may not include {target}")

    def check_external_include(self, includer: str, room: Room, name: str):
        kind = kind_of_external(name)
        if room.anything or kind in room.external or \
                any(name.startswith(start) for start in room.external if start not in ("std", "effects", "system")):
            return
        self.faults.append(f"{includer}: {room.folder} may not include <{name}>")

    def check_file(self, includer: str, path: pathlib.Path):
        code = code_of(path.read_text(encoding="utf-8"))
        room = room_of(includer)
        for bracket, name in includes_of(code):
            target = self.resolve(includer, name)
            if target:
                self.check_project_include(includer, room, target)
            elif bracket == '"':
                self.faults.append(f'{includer}: "{name}" is no file of this tree')
            else:
                self.check_external_include(includer, room, name)
        reads_environment = re.search(r"\b(?:secure_)?(?:get|set|put)env\b|\benviron\b", code)
        if reads_environment and includer != ENVIRONMENT_READER and not includer.startswith(ENVIRONMENT_FREE):
            self.faults.append(f"{includer}: only {ENVIRONMENT_READER} may use {reads_environment.group(0)}")

    def check_cycles(self):
        try:
            graphlib.TopologicalSorter(self.graph).prepare()
        except graphlib.CycleError as error:
            self.faults.append("include cycle: " + " -> ".join(error.args[1]))

    def check(self):
        for includer, path in sorted(self.files.items()):
            self.check_file(includer, path)
        self.check_cycles()
        return self.faults


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    checker = Checker(root)
    faults = checker.check()
    for fault in faults:
        print(fault)
    print(f"{len(checker.files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
