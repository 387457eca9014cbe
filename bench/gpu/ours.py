"""flashspan_bench_gpu, run for one mask: either for one line of figures or as a server of timed rounds."""

import ctypes
import json
import subprocess
import tempfile
import threading

import torch

TIMEOUT = 180  # seconds without an answer


class BenchError(RuntimeError):
    """What flashspan_bench_gpu said before it ended."""


def write_raw(file, tensor):
    tensor = tensor.contiguous().cpu()
    file.write_bytes(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))


def read_raw(file, dtype, shape):
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=dtype).view(shape)


class Ours:
    """One process. It starts at once; `ready()` waits until it has compiled and run once. Use as a context."""

    def __init__(self, bench, form, folder, **options):
        """`folder` takes the mask's tensors. Options as on the command line, with _ for -, True for a flag."""
        folder.mkdir(parents=True, exist_ok=True)
        command = [bench, "--mask", form.text]
        for name, tensor in form.tensors.items():
            write_raw(folder / f"tensor.{name}", tensor)
            command += ["--tensor", f"{name}={folder / f'tensor.{name}'}"]
        for name, value in form.scalars.items():
            command += ["--scalar", f"{name}={value}"]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [] if value is False else [flag, str(value)]
        self._form = form
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                         text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()  # a server ends with its input
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ready(self):
        """The line of figures."""
        return self._answer()

    def round_ms(self, direction, launches):
        """Milliseconds a launch, of a server."""
        self._process.stdin.write(f"{direction} {launches}\n")
        self._process.stdin.flush()
        return self._answer()["ms"]

    def _answer(self):
        watchdog = threading.Timer(TIMEOUT, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        raise BenchError(f"{self._form.text}: {self._errors.read().strip() or f'exit code {code}'}")


def figures(bench, form, folder, **options):
    """The line of figures of one run."""
    with Ours(bench, form, folder, **options) as run:
        return run.ready()
