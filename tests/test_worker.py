"""Calls in another process: their results in order, their errors, and a process that is gone."""

import os
import subprocess
import sys
import time
from pathlib import Path
from subprocess import getoutput

import pytest

from packager.arch import Arch
from packager.errors import DpackError
from packager.worker import spread, started

LARGE = 1 << 30

MY_PID = "__import__('os').getpid()"


def test_answers_come_in_the_order_of_the_calls():
    with started() as worker:
        worker.ask([(len, "three"), (Arch.parse, "8.6")])
        assert (worker.answer(), worker.answer()) == (5, Arch(8, 6))
        worker.ask([(eval, MY_PID)])
        assert worker.answer() != os.getpid()


def test_an_error_is_raised_here_as_it_was_there():
    with started() as worker:
        worker.ask([(Arch.parse, "large"), (len, "")])
        with pytest.raises(DpackError, match="not a compute capability") as raised:
            worker.answer()
        assert (raised.value.exit, raised.value.next[:5]) == (2, "write")
        assert worker.answer() == 0


def test_what_a_library_prints_is_no_answer(capfd):
    with started() as worker:
        worker.ask([(print, "words"), (len, "four")])
        assert (worker.answer(), worker.answer()) == (None, 4)
    assert capfd.readouterr() == ("", "words\n")


def test_a_process_that_is_gone_has_no_answer():
    with started() as worker:
        worker.ask([(os._exit, 0)])
        with pytest.raises(EOFError):
            worker.answer()
        worker.ask([(len, "")])
        with pytest.raises(EOFError):
            worker.answer()


def test_it_ends_with_its_context_and_with_dpack(tmp_path):
    with started() as worker:
        worker.ask([(eval, MY_PID)])
        pid = worker.answer()
    assert not Path(f"/proc/{pid}").exists()
    script = f"""
import os
from packager.worker import started
with started() as worker:
    worker.ask([(eval, {MY_PID!r})])
    print(worker.answer(), flush=True)
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=tmp_path)
    for _ in range(1000):
        if not Path(f"/proc/{int(done.stdout)}").exists():
            return
        time.sleep(0.01)
    pytest.fail("the process outlived the one that started it")


def test_two_processes_share_the_items(tmp_path):
    flag = tmp_path / "flag"
    here = f"while [ ! -e {flag} ]; do sleep 0.01; done; echo $PPID"
    first, second = spread(getoutput, [here, f"touch {flag}; echo $PPID"], [LARGE + 1, LARGE])
    assert int(first) == os.getpid()
    assert int(second) != os.getpid()


def test_results_have_the_order_of_the_items():
    items = ["1", "22", "333", "4444"]
    assert spread(len, items, [LARGE, 3 * LARGE, 0, 2 * LARGE]) == [1, 2, 3, 4]
    assert spread(len, [], []) == []


def test_the_first_item_with_an_error_is_told():
    with pytest.raises(DpackError, match="'first'"):
        spread(Arch.parse, ["8.6", "first", "second"], [LARGE, LARGE, 2 * LARGE])


def test_an_item_whose_process_was_ended_is_named(tmp_path):
    flag = tmp_path / "flag"
    here = f"while [ ! -e {flag} ]; do sleep 0.01; done"
    with pytest.raises(DpackError, match="the process that read it was ended") as raised:
        spread(getoutput, [here, f"touch {flag}; kill -9 $PPID"], [LARGE + 1, LARGE])
    assert "kill -9" in raised.value.what


@pytest.mark.parametrize(("size", "cores"), [(1, 2), (LARGE, 1)], ids=["little to do", "one processor"])
def test_nothing_is_started_where_it_would_not_help(monkeypatch, size, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert spread(lambda item: (item, os.getpid()), "ab", [size, size]) == [
        ("a", os.getpid()),
        ("b", os.getpid()),
    ]
