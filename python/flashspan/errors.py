"""Exceptions. Every failure of the library is a FlashspanError, and the Python exception that fits it best as well."""

from __future__ import annotations


class FlashspanError(Exception):
    """What failed: which argument, what it got, what it takes.

    Attributes:
        code: name of the kind of failure, for example ``"bad_argument"``.
        argument: the argument or component at fault.
        got: the offending value.
        takes: what would have been accepted.
        detail: further lines, for example a caret under the column of an expression.
    """

    code = "error"

    def __init__(self, argument: str, got: str = "", takes: str = "", detail: str = "") -> None:
        self.argument, self.got, self.takes, self.detail = argument, got, takes, detail
        line = argument
        if got:
            line += (": " if line else "") + f"got {got}"
        if takes:
            line += ("; " if line else "") + f"takes {takes}"
        super().__init__(line + (f"\n{detail}" if detail else ""))

    def __reduce__(self):
        return type(self), (self.argument, self.got, self.takes, self.detail)


class BadArgumentError(FlashspanError, ValueError):
    """An argument's value, shape, dtype or device is not one that the call takes."""

    code = "bad_argument"


class BadExpressionError(FlashspanError, ValueError):
    """The text of a mask or score does not parse or type-check; ``detail`` marks the column."""

    code = "bad_expression"


class TraceError(FlashspanError, TypeError):
    """A Python callable does something that cannot become a mask or score program."""

    code = "not_traceable"


class UnsupportedError(FlashspanError, NotImplementedError):
    """A valid request that this build, device or version cannot serve."""

    code = "unsupported"


class NoDeviceError(FlashspanError, RuntimeError):
    """No driver, or no such device."""

    code = "no_device"


class MissingComponentError(FlashspanError, RuntimeError):
    """NVRTC, the CPU back end or another optional part could not be opened."""

    code = "missing_component"


class CompileError(FlashspanError, RuntimeError):
    """The device compiler refused the generated source."""

    code = "compile_failed"


class KernelSpillsError(CompileError):
    """The kernel compiled, but does not fit its registers."""

    code = "kernel_spills"


class DeviceError(FlashspanError, RuntimeError):
    """A call of the driver failed."""

    code = "device_error"


class WorkspaceTooSmallError(FlashspanError, ValueError):
    """The workspace is smaller than the query said."""

    code = "workspace_too_small"


class InputOutputError(FlashspanError, OSError):
    """A file could not be read or written."""

    code = "io_error"


class NotPreparedError(FlashspanError, RuntimeError):
    """The call's kernel would have to be compiled, and `flashspan.freeze` has forbidden that."""

    code = "not_prepared"


class TimedOutError(FlashspanError, TimeoutError):
    """Not done within the time that was given."""

    code = "timed_out"


_KINDS = {kind.code: kind for kind in (
    BadArgumentError, BadExpressionError, UnsupportedError, NoDeviceError, MissingComponentError, CompileError,
    KernelSpillsError, DeviceError, WorkspaceTooSmallError, InputOutputError, NotPreparedError, TimedOutError)}


def exception_of(code: str, argument: str, got: str, takes: str, detail: str) -> FlashspanError:
    """The exception for an error of the C++ library; called by the extension."""
    kind = _KINDS.get(code, FlashspanError)
    error = kind(argument, got, takes, detail)
    error.code = code
    return error
