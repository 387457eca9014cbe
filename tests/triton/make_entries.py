"""Compiles kernels with Triton, without a GPU: make_entries.py FOLDER

FOLDER/<case>/ gets the files of the cache entry of each case, and FOLDER/aot/ what triton.tools.compile writes.
"""

import os
import pathlib
import shutil
import sys
import tempfile
import types

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="flashspan-triton-")

import triton
from kernels import add_kernel, matmul_kernel, scale_kernel
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.compiler import ASTSource
from triton.tools import compile as ahead_of_time

TARGET = GPUTarget("cuda", 90, 32)
ALIGNED = [["tt.divisibility", 16]]

VECTORS = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "alpha": "fp32", "BLOCK": "constexpr"}
MATRICES = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", "M": "i32", "N": "i32", "K": "i32", "BLOCK_M": "constexpr",
            "BLOCK_N": "constexpr", "BLOCK_K": "constexpr"}
CASES = {
    "add": (add_kernel, VECTORS, {"BLOCK": 256}, {"num_warps": 4}),
    "matmul": (matmul_kernel, MATRICES, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, {"num_warps": 4, "num_stages": 3}),
    "scale": (scale_kernel, {"x_ptr": "*bf16", "factor": "bf16", "shift": "fp16", "n": "i64", "BLOCK": "constexpr"},
              {"BLOCK": 128}, {"num_warps": 2}),
    "cluster": (add_kernel, VECTORS, {"BLOCK": 256}, {"num_warps": 4, "num_ctas": 2}),
    "dependent": (add_kernel, VECTORS, {"BLOCK": 256}, {"num_warps": 4, "launch_pdl": True}),
}


def compile_case(folder: pathlib.Path, function, signature: dict, constants: dict, options: dict) -> None:
    aligned = {(place,): ALIGNED for place, kind in enumerate(signature.values()) if kind.startswith("*")}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=TARGET, options=options)
    folder.mkdir(parents=True, exist_ok=True)
    for path in compiled.metadata_group.values():
        shutil.copy(path, folder)


def compile_ahead_of_time(folder: pathlib.Path) -> None:
    """Of its driver the tool wants the target and the names of C types."""
    triton.runtime.driver.set_active(
        types.SimpleNamespace(map_python_to_cpp_type=driver.ty_to_cpp, get_current_target=lambda: TARGET))
    folder.mkdir(parents=True, exist_ok=True)
    ahead_of_time.compile_kernel(ahead_of_time.CompileArgs(
        path=str(pathlib.Path(__file__).parent / "kernels.py"), kernel_name="add_kernel", num_warps=4, num_stages=3,
        signature="*fp32:16, *fp32:16, *fp32:16, i32, fp32, 256", grid="(n + 255) / 256, 1, 1", target=None,
        out_name="add", out_path=folder / "add"))


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[1])
    for name, case in CASES.items():
        compile_case(to / name, *case)
    compile_ahead_of_time(to / "aot")
    print(triton.__version__)
