"""The wheel of tools/build_wheel.sh stands by itself: on a system without our libraries, in an environment without others."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.xdist_group("wheel")  # one process makes the environment, for all

WHEELS = sorted((pathlib.Path(__file__).resolve().parents[2] / "build" / "wheel").glob("flashspan-*.whl"))


@pytest.fixture(scope="module")
def wheel():
    if not WHEELS:
        pytest.skip("no wheel: tools/build_wheel.sh builds one")
    return WHEELS[0]


@pytest.fixture(scope="module")
def bare_python(wheel, tmp_path_factory):
    """The interpreter of a new environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check",
                    "--no-index", "--no-deps", wheel], check=True)
    return python


def printed_by(python, program):
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_is_tagged_for_every_system_with_its_glibc(wheel):
    assert "-manylinux_2_" in wheel.name and "-linux_" not in wheel.name


def test_it_takes_from_the_system_what_every_system_has(wheel):
    shown = subprocess.run([pathlib.Path(sys.executable).parent / "auditwheel", "show", wheel], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "is consistent" in " ".join(shown.stdout.split()) and "manylinux_2_" in shown.stdout


def test_it_holds_its_types_the_cpu_back_end_and_the_command(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("flashspan/py.typed", "flashspan/_core.pyi", "flashspan/libflashspan_cpu.so", "flashspan/flashspan"):
        assert name in names
    assert not [name for name in names if "libcuda" in name or "libnvrtc" in name or "libLLVM" in name]


def test_it_works_without_numpy_and_torch(bare_python):
    program = """
import sys, flashspan
print(flashspan.__version__)
print(flashspan.masks.causal().density(3))
print(next(finding.ok for finding in flashspan.doctor() if finding.subject == "cpu"))
print([name for name in ("numpy", "torch") if name in sys.modules])
"""
    assert printed_by(bare_python, program) == ["0.1.0", str(6 / 9), "True", "[]"]


def test_every_library_is_its_own(bare_python):
    """Both the extension and the CPU back end are mapped; no library of theirs comes from the system. What talks to other
    processes has the system's (tools/build_wheel.sh), and is kept from being opened."""
    program = """
import os
os.environ["FLASHSPAN_NETWORK_PLUGIN"] = "/nowhere"
import flashspan
flashspan.doctor()
print(*{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})
"""
    mapped = [pathlib.Path(path) for path in printed_by(bare_python, program)]
    ours = [path for path in mapped if bare_python.parents[1] in path.parents]
    assert {path.name.split("-")[0].split(".")[0] for path in ours} >= {
        "_core", "libflashspan_cpu", "libspdlog", "libfmt", "libtbb", "libzstd"}
    assert not [path for path in mapped if path not in ours and path.name.startswith(("libspdlog", "libfmt", "libtbb", "libzstd"))]


def test_what_needs_an_array_library_says_so(bare_python):
    program = """
import flashspan
try:
    flashspan.attention([1.0], [1.0], [1.0])
except flashspan.BadArgumentError as error:
    print("refused" if "__dlpack__" in str(error) else error)
"""
    assert printed_by(bare_python, program) == ["refused"]


def test_the_command_is_on_the_path_and_finds_what_stands_beside_it(bare_python, tmp_path):
    """Under its name alone, as a shell finds it, where the working folder has a file of that name."""
    (tmp_path / "flashspan").write_text("of somebody else")

    def run(*arguments):
        return subprocess.run(["flashspan", *arguments], cwd=tmp_path, env={"PATH": f"{bare_python.parent}:/usr/bin:/bin"},
                              capture_output=True, text=True)

    assert "ok      cpu" in run("doctor", "--cache-dir", tmp_path / "cache").stdout
    explained = run("explain", "--mask", "causal", "--q-len", "300")
    assert explained.returncode == 0 and "lowering" in explained.stdout, explained.stderr
    refused = run("explain", "--mask", "q >> k", "--q-len", "300")
    assert refused.returncode == 2 and refused.stderr.startswith("flashspan: ")
