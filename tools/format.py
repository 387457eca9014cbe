#!/usr/bin/env python3
"""Checks (or with --write, makes) every source file's layout: format.py CLANG_FORMAT [--write]."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "core", "codegen", "templates", "cache", "runtime", "reports", "capi", "tools", "examples", "python", "bench", "tests")
SUFFIXES = {".cpp", ".hpp", ".h", ".cuh", ".cu", ".c"}


def main(arguments):
    files = sorted(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    mode = ["-i"] if "--write" in arguments else ["--dry-run", "-Werror"]
    result = subprocess.run([arguments[0], "--style=file", *mode, *files], check=False)
    print(f"{len(files)} files {'written' if '--write' in arguments else 'checked'}")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
