"""Runs kernels through Triton on a GPU and writes down what a launch of each takes and gives: record_launches.py FOLDER

Three kernels: a vector add, a matrix product, and the forward of FlexAttention as Inductor compiles it. FOLDER/launches.json
lists, for each: its entry in Triton's cache, the grid, and the arguments; of memory, the bytes before and after the launch.
Exit status 77 where there is no GPU.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="flashspan-triton-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="flashspan-inductor-")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # kernels are to be made in this process

import torch

if not torch.cuda.is_available():
    sys.exit(77)

import torch._inductor.config
import triton
from kernels import add_kernel, matmul_kernel
from triton.compiler import CompiledKernel

torch._inductor.config.use_static_cuda_launcher = False  # so that all launches come by the one place below


class Recorder:
    """Wraps the launcher of every kernel: the arguments of its first launch, with what is in memory before and after."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.launches: list[dict] = []
        self.wanted = ""
        self.run = CompiledKernel.run
        CompiledKernel.run = property(self._recording)

    def _recording(self, kernel: CompiledKernel):
        launch = self.run.fget(kernel)
        if not self.wanted or self.wanted not in kernel.metadata.name:
            return launch

        def recorded(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            if not self.wanted:
                return launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments)
            arguments_of = self._passed(kernel, arguments)
            before = [self._bytes_of(argument) for argument in arguments_of]
            result = launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments)
            torch.cuda.synchronize()
            self._write(kernel, (x, y, z), arguments_of, before)
            return result

        return recorded

    @staticmethod
    def _passed(kernel: CompiledKernel, arguments: tuple) -> list:
        """Without those that are constants of the kernel."""
        types = list(kernel.src.signature.values())
        if len(types) != len(arguments):
            return list(arguments)
        return [argument for argument, kind in zip(arguments, types) if kind != "constexpr"]

    @staticmethod
    def _bytes_of(argument) -> bytes | None:
        if not isinstance(argument, torch.Tensor):
            return None
        storage = argument.untyped_storage()
        everything = torch.empty(0, dtype=torch.uint8, device=argument.device).set_(storage)
        return bytes(everything[argument.data_ptr() - storage.data_ptr():].cpu().numpy())

    def _write(self, kernel: CompiledKernel, grid: tuple, arguments: list, before: list) -> None:
        entry = next(path for path in kernel.metadata_group.values() if str(path).endswith(".json"))
        described = []
        for place, (argument, memory) in enumerate(zip(arguments, before)):
            if memory is None:
                kind = "real" if isinstance(argument, float) else "whole"
                described.append({kind: argument if kind == "real" else int(argument)})
                continue
            stem = f"{len(self.launches)}-{place}"
            (self.folder / f"{stem}.before").write_bytes(memory)
            (self.folder / f"{stem}.after").write_bytes(self._bytes_of(argument))
            described.append({"memory": stem})
        self.launches.append({"entry": str(entry), "grid": list(grid), "arguments": described})
        self.wanted = ""


def flex_attention_forward() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    generator = torch.Generator("cuda").manual_seed(0)
    query, key, value = (torch.randn(1, 2, 256, 64, device="cuda", dtype=torch.bfloat16, generator=generator)
                         for _ in range(3))
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")
    torch.compile(flex_attention)(query, key, value, block_mask=block_mask)


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(folder)
    generator = torch.Generator("cuda").manual_seed(0)

    x, y = (torch.randn(1000, device="cuda", generator=generator) for _ in range(2))
    recorder.wanted = "add_kernel"
    add_kernel[(4,)](x, y, torch.zeros_like(x), 1000, 0.3, BLOCK=256)

    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.float16, generator=generator) for _ in range(2))
    recorder.wanted = "matmul_kernel"
    matmul_kernel[(4, 4)](a, b, torch.zeros_like(a), 256, 256, 256, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)

    recorder.wanted = "flex_attention"
    flex_attention_forward()
    (folder / "launches.json").write_text(json.dumps({"triton": triton.__version__, "launches": recorder.launches}))
    if len(recorder.launches) != 3:
        sys.exit(f"{len(recorder.launches)} launches were seen, not 3")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
