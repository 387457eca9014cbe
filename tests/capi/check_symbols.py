#!/usr/bin/env python3
"""Holds the C interface to its list of symbols.

Usage: check_symbols.py SYMBOLS HEADER LIBRARY PROGRAM. The library exports exactly what SYMBOLS lists, the header
declares exactly that, and the program uses all of it. A line may be added to SYMBOLS; one that is taken away or changed
breaks programs that are linked already.
"""

import pathlib
import re
import subprocess
import sys


def symbols_of(path, *options):
    out = subprocess.run(["nm", "-D", *options, path], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in out.splitlines()]
    return {re.sub(r"@.*", "", name) for name in names}


def main(symbols, header, library, program):
    listed = set(pathlib.Path(symbols).read_text(encoding="utf-8").split())
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(header).read_text(encoding="utf-8"), flags=re.DOTALL)
    declared = set(re.findall(r"FLASHSPAN_API[^;(]*?\b(flashspan_\w+)\s*\(", text))
    exported = {name for name in symbols_of(library, "--defined-only") if name != "FLASHSPAN_1"}
    used = {name for name in symbols_of(program, "--undefined-only") if name.startswith("flashspan_")}
    faults = 0
    for what, names in (("exported", exported), ("declared", declared), ("used by the test", used)):
        for name in sorted(names - listed):
            print(f"{name}: {what}, but not listed")
            faults += 1
        for name in sorted(listed - names):
            print(f"{name}: listed, but not {what}")
            faults += 1
    print(f"{len(listed)} symbols, {faults} faults")
    return 1 if faults or not listed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
