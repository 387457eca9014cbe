"""Compiles a function with Triton whose PTX is replaced by FOLDER/attention_forward.ptx: override.py FOLDER CAPABILITY

FOLDER/override/ gets the files of the cache entry. CAPABILITY: of the GPU that it is for, times ten.
"""

import os
import pathlib
import shutil
import sys
import tempfile

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="flashspan-triton-")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def attention_forward(query, key, value, out, lse, scale):
    tl.store(lse, scale)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    signature = {name: "*bf16" for name in ("query", "key", "value", "out")} | {"lse": "*fp32", "scale": "fp32"}
    compiled = triton.compile(ASTSource(fn=attention_forward, signature=signature), target=GPUTarget("cuda", int(sys.argv[2]), 32),
                              options={"num_warps": 4, "ir_override": str(folder / "attention_forward.ptx")})
    (folder / "override").mkdir()
    for path in compiled.metadata_group.values():
        shutil.copy(path, folder / "override")
