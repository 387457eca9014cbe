"""What this machine has, and the command that installs what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from . import _core


@dataclass(frozen=True)
class Finding:
    """One part of the machine: "driver", "nvrtc", "gpu 0", "cpu", "llvm", "network", "cache". `remedy` is empty if it is ok."""

    subject: str
    ok: bool
    detail: str
    remedy: str

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'missing':8}{self.subject}: {self.detail}" + (
            f"\n        {self.remedy}" if self.remedy else "")


class Findings(list):
    """Of `doctor`; prints as text."""

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self)


def doctor(cache_dir: str | None = None) -> Findings:
    """Looks at the driver, NVRTC, the GPUs, the CPU back end and the cache in `cache_dir` (None: where calls keep theirs)."""
    return Findings(Finding(**fields) for fields in _core.findings(cache_dir))
