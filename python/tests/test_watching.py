"""Metrics, and functions called around compiles. On the CPU: the compiler there is LLVM."""

import logging
import os
import subprocess
import sys
import textwrap

import numpy
import pytest

import flashspan


def attend(expression):
    query = numpy.ones((1, 4, 1, 16), dtype=numpy.float32)
    return flashspan.attention(query, query, query, mask=expression)


@pytest.fixture
def fresh_expression(request):
    """A mask that no cache has: its number is of this process and test."""
    number = os.getpid() * 1000 + sum(map(ord, request.node.name)) % 1000
    return f"(q >= k) | (q == {number})"


def counted(name):
    lines = dict(line.rsplit(" ", 1) for line in flashspan.metrics().splitlines() if not line.startswith("#"))
    return float(lines[name])


def test_both_functions_are_told_of_a_compile_and_not_of_a_call_that_needs_none(fresh_expression):
    before, after = [], []
    with flashspan.on_compile(before=before.append, after=after.append):
        attend(fresh_expression)
        assert len(before) == len(after) == 1
        attend(fresh_expression)
    assert len(before) == len(after) == 1
    assert before[0] == flashspan.CompileEvent(after[0].spec, after[0].key)
    assert "forward" in after[0].spec and len(after[0].key) == 32
    assert after[0].milliseconds > 0 and after[0].error is None


def test_a_removed_hook_is_not_called(fresh_expression):
    events = []
    hook = flashspan.on_compile(after=events.append)
    hook.remove()
    hook.remove()
    attend(fresh_expression)
    assert events == []


def test_several_hooks_are_called_and_one_that_fails_is_logged_and_stops_nothing(fresh_expression, caplog):
    events = []

    def fail(event):
        raise RuntimeError("of the hook")

    with flashspan.on_compile(after=fail), flashspan.on_compile(after=events.append), caplog.at_level(logging.ERROR):
        result = attend(fresh_expression)
    assert len(events) == 1 and result.shape == (1, 4, 1, 16)
    assert [record.getMessage() for record in caplog.records] == ["a function given to on_compile failed"]
    assert "of the hook" in caplog.text


@pytest.mark.parametrize("arguments", [{"before": 1}, {"after": "print"}])
def test_what_cannot_be_called_is_refused(arguments):
    with pytest.raises(flashspan.BadArgumentError, match="a function of a CompileEvent, or None"):
        flashspan.on_compile(**arguments)


def test_metrics_count_compiles_and_launches(fresh_expression):
    attend("q >= k")
    compiles, launches = counted('flashspan_compiles_total{result="ok"}'), counted(
        'flashspan_launches_total{direction="forward"}')
    attend(fresh_expression)
    attend(fresh_expression)
    assert counted('flashspan_compiles_total{result="ok"}') == compiles + 1
    assert counted('flashspan_launches_total{direction="forward"}') == launches + 2


def test_metrics_are_lines_that_prometheus_reads():
    text = flashspan.metrics()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            assert line.split()[1] in ("HELP", "TYPE")
        else:
            name, value = line.rsplit(" ", 1)
            assert name.startswith("flashspan_") and float(value) >= 0


def test_a_hook_that_is_left_at_exit_breaks_nothing():
    program = textwrap.dedent("""
        import numpy, os, flashspan
        flashspan.on_compile(before=lambda event: None, after=lambda event: print("compiled", event.error))
        query = numpy.ones((1, 4, 1, 16), dtype=numpy.float32)
        flashspan.attention(query, query, query, mask=f"(q >= k) | (q == {os.getpid()}777)")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "compiled None\n", "")


@pytest.mark.parametrize("behind", [
    'try:\n    flashspan.prepare([call], time_out=1e-9)\nexcept flashspan.TimedOutError:\n    print("gone on")',
    'flashspan.prepare([dict(call, mask="causal")])\nflashspan.freeze("interpret")\nflashspan.attention(**call)\nprint("gone on")',
], ids=["a time-out", "a kernel that stands in"])
def test_a_process_may_end_before_the_compile_in_its_background(behind, fresh_expression):
    """Which tells of itself when it is done, to an interpreter that is not there any more."""
    program = textwrap.dedent(f"""
        import torch, flashspan
        query = torch.ones(1, 4, 1, 16)
        call = dict(query=query, key=query, value=query, mask={fresh_expression!r})
        """) + behind
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "gone on\n"), done.stderr


def test_a_fork_ends_though_a_thread_of_its_parent_was_telling_of_a_compile(fresh_expression):
    program = textwrap.dedent(f"""
        import os, sys, threading
        import numpy, flashspan
        told, done = threading.Event(), threading.Event()
        query = numpy.ones((1, 4, 1, 16), numpy.float32)
        with flashspan.on_compile(before=lambda event: (told.set(), done.wait())):
            thread = threading.Thread(target=lambda: flashspan.attention(query, query, query, mask={fresh_expression!r}))
            thread.start()
            told.wait()
            if os.fork() == 0:
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
            done.set()
            thread.join()
        """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "7\n", done.stderr
