#!/usr/bin/env python3
"""Runs clang-tidy over the sources that a build compiles: lint.py CLANG_TIDY BUILD_DIRECTORY [--changed-since REVISION].

With --changed-since only sources that differ from the revision, or include a header that does, are checked. Prints
findings as they come; exit code 1 if there is any.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def sources_of(build):
    entries = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in entries}
    return sorted(file for file in files if file.is_relative_to(ROOT) and not file.is_relative_to(build))


def changed_since(revision, sources):
    listing = subprocess.run(["git", "diff", "--name-only", revision], cwd=ROOT, capture_output=True, text=True, check=True)
    changed = set(listing.stdout.split())
    headers = [name for name in changed if name.endswith((".hpp", ".h", ".cuh"))]

    def concerned(source):
        if str(source.relative_to(ROOT)) in changed:
            return True
        text = source.read_text()
        return any(header.removeprefix("include/") in text for header in headers)

    return [source for source in sources if concerned(source)]


def main(arguments):
    tidy, build = arguments[0], pathlib.Path(arguments[1]).resolve()
    sources = sources_of(build)
    if "--changed-since" in arguments:
        sources = changed_since(arguments[arguments.index("--changed-since") + 1], sources)

    def check(source):
        command = [tidy, "--quiet", "-p", str(build), str(source)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    faulty = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for result in pool.map(check, sources):
            if result.returncode != 0:
                faulty += 1
                print(result.stdout, result.stderr, sep="", flush=True)
    print(f"clang-tidy: {len(sources)} sources checked, {faulty} with findings")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
