"""What the tests share: devices, a cache of their own, tensors in poisoned memory."""

import os
import tempfile

_cache = tempfile.TemporaryDirectory(prefix="flashspan-tests-", ignore_cleanup_errors=True)  # until the process ends
os.environ["FLASHSPAN_CACHE_DIR"] = _cache.name  # before the library reads it

import pytest
import torch

import flashspan

torch.set_num_threads(1)  # tensors are small: where other programs run, threads that wait for one another take many times longer

EPSILON = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def _dtypes_of(device):
    return (torch.float32, torch.float16, torch.bfloat16) if device == "cpu" else (torch.float16, torch.bfloat16)


_PLACES = [pytest.param((device, dtype), id=f"{device}-{str(dtype).removeprefix('torch.')}")
           for device in ("cpu", "cuda") for dtype in _dtypes_of(device)]


def _skip_without(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if device == "cpu" and not any(found.subject == "cpu" and found.ok for found in flashspan.doctor()):
        pytest.skip("no CPU back end")


def pytest_collection_modifyitems(items):
    """Marker `gpu`: tests that need a CUDA device."""
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if "cuda" in item.fixturenames or any(value == "cuda" or (isinstance(value, tuple) and "cuda" in value)
                                              for value in parameters):
            item.add_marker("gpu")


@pytest.fixture(params=_PLACES)
def place(request):
    """(device, dtype) of every kind that attention takes."""
    _skip_without(request.param[0])
    return request.param


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    _skip_without(request.param)
    return request.param


@pytest.fixture
def cpu():
    _skip_without("cpu")
    return "cpu"


@pytest.fixture
def cuda():
    _skip_without("cuda")
    return "cuda"


@pytest.fixture
def poisoned_results():
    """Memory that torch.empty gives out is full of NaN: what a call leaves unwritten shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def gapped(shape, dtype, device):
    """Random values in a view whose memory has NaN between the rows and behind the last one."""
    *outer, rows, columns = shape
    memory = torch.full((*outer, rows + 1, columns + 8), float("nan"), dtype=dtype, device=device)
    view = memory[..., :rows, :columns]
    view.copy_(torch.randn(shape))
    return view


def assert_close(got, wanted, dtype, units=8.0):
    """`got` is within `units` roundings of `dtype`, at the scale of the largest wanted value; infinities agree."""
    got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
    assert got.shape == wanted.shape
    infinite = torch.isinf(wanted)
    assert torch.equal(got[infinite], wanted[infinite])
    if infinite.all():
        return
    scale = max(1.0, wanted[~infinite].abs().max().item())
    worst = (got - wanted)[~infinite].abs().max().item()
    assert worst <= units * EPSILON[dtype] * scale, f"off by {worst}, at the scale of {scale}"
