"""PyTorch's attention engines on one mask: cuDNN and FlashAttention-2 through SDPA, FlexAttention compiled."""

import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SDPA = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
ENGINES = (*SDPA, "flex")


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


class Peer:
    """An engine that has run once. `results`: out and, with a backward, dq, dk, dv; `cold_s`: seconds until then."""

    def __init__(self, engine, family, inputs, backward):
        self._device = inputs["q"].device.type
        self._q, self._k, self._v = (inputs[name].detach().requires_grad_(backward) for name in ("q", "k", "v"))
        self._out_gradient = inputs["do"]
        start = time.time()
        self._attend = self._make_flex(family) if engine == "flex" else self._make_sdpa(engine, family)
        self._out = self._attend()
        self.results = {"out": self._out.detach()}
        if backward:
            self._run_backward()
            self.results |= {"dq": self._q.grad, "dk": self._k.grad, "dv": self._v.grad}
        synchronize(self._device)
        self.cold_s = time.time() - start

    @staticmethod
    def takes(engine, family):
        return engine == "flex" or family.causal is not None

    def _make_sdpa(self, engine, family):
        def attend():
            with sdpa_kernel(SDPA[engine]):
                return F.scaled_dot_product_attention(self._q, self._k, self._v, is_causal=family.causal)
        return attend

    def _make_flex(self, family):
        length = self._q.shape[2]
        # Compiling the block mask's maker takes up to half a minute a mask and changes nothing that is timed.
        block_mask = create_block_mask(family.predicate, None, None, length, length, device=self._device)
        torch._dynamo.reset()  # else the ninth mask would count as one recompilation too many and run uncompiled
        flex = flex_attention if self._device == "cpu" else torch.compile(flex_attention, dynamic=False)
        return lambda: flex(self._q, self._k, self._v, block_mask=block_mask)

    def _run_backward(self):
        self._q.grad = self._k.grad = self._v.grad = None
        self._out.backward(self._out_gradient, retain_graph=True)

    def _run_forward(self):
        with torch.no_grad():
            self._attend()

    def round_ms(self, direction, launches):
        """Milliseconds a launch, of launches that follow one another; then the wait for the last."""
        run = self._run_forward if direction == "forward" else self._run_backward
        start = time.perf_counter()
        for _ in range(launches):
            run()
        synchronize(self._device)
        return 1e3 * (time.perf_counter() - start) / launches
