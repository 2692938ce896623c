"""Calls in another process: their results in order, their errors, and a process that is gone."""

import errno
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from subprocess import getoutput

import pytest

from packager.arch import Arch
from packager.errors import DpackError
from packager.worker import copied, spread, started

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


def test_a_process_that_is_gone_at_the_start_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    more_than_a_pipe_holds = partial(len, bytes(1 << 20))
    with (
        pytest.raises(DpackError, match="cannot start a second process: the process that did it was ended"),
        started(more_than_a_pipe_holds),
    ):
        pytest.fail("it did not start")


FORKED = """
import os, signal, sys
from packager.worker import copied
fork = os.fork
def interrupted():
    number = fork()
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return number
os.fork = interrupted
def stop(*_):
    raise KeyboardInterrupt
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, stop)
try:
    with copied():
        print("never")
finally:
    print("cleaned up by", "dpack" if os.getpid() == int(os.environ["DPACK"]) else "the copy", flush=True)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_it_is_copied_ends_both_and_only_dpack_cleans_up(name):
    command = ["sh", "-c", 'DPACK=$$ exec "$@"', "sh", sys.executable, "-c", FORKED, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "cleaned up by dpack\n"
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_without_a_copy_nothing_stays_open(monkeypatch):
    def refused():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def state():
        return {*Path("/proc/self/fd").iterdir()}, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    monkeypatch.setattr(os, "fork", refused)
    before = state()
    with pytest.raises(BlockingIOError), copied():
        pass
    assert state() == before


def test_it_ends_with_its_context_and_with_dpack(tmp_path):
    with started() as worker:
        worker.ask([(eval, MY_PID)])
        pid = worker.answer()
    assert _ended(pid)
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
        if _ended(int(done.stdout)):
            return
        time.sleep(0.01)
    pytest.fail("the process outlived the one that started it")


def _ended(pid):
    """Whether a process is gone, or waits for somebody to read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def two_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def waits_for(flag, then=":"):
    """A command for sh that waits ten seconds at the most."""
    return f"for i in $(seq 1000); do [ -e {flag} ] && break; sleep 0.01; done; {then}"


@pytest.mark.usefixtures("two_processors")
def test_two_processes_share_the_items(tmp_path):
    flag = tmp_path / "flag"
    here = waits_for(flag, "echo $PPID")
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


@pytest.mark.usefixtures("two_processors")
def test_an_item_whose_process_was_ended_is_named_and_the_others_are_done(tmp_path):
    flag, last = tmp_path / "flag", tmp_path / "last"
    items = [f"touch {last}", f"touch {flag}; kill -9 $PPID", waits_for(flag)]
    with pytest.raises(DpackError, match="the process that did it was ended") as raised:
        spread(getoutput, items, [LARGE, LARGE + 1, LARGE + 2])
    assert "kill -9" in raised.value.what
    assert last.exists()


SPREAD = """
import os, sys
from packager.worker import spread
os.sched_getaffinity = lambda _: {0, 1}
wait = "open({flag!r}, 'a').write('.') and __import__('time').sleep(60)"
try:
    spread(eval, 4 * [wait.format(flag=sys.argv[1])], 4 * [1 << 30])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_both_processes_without_a_word(tmp_path):
    flag = tmp_path / "flag"
    command = [sys.executable, "-c", SPREAD, str(flag)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as dpack:
        for _ in range(1000):
            if flag.exists() and flag.stat().st_size == 2:  # both are at work, and two items wait
                break
            time.sleep(0.01)
        dpack.send_signal(signal.SIGINT)
        assert dpack.communicate(timeout=30) == ("interrupted\n", "")


@pytest.mark.parametrize(("size", "cores"), [(1, 2), (LARGE, 1)], ids=["little to do", "one processor"])
def test_nothing_is_started_where_it_would_not_help(monkeypatch, size, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert spread(lambda item: (item, os.getpid()), "ab", [size, size]) == [
        ("a", os.getpid()),
        ("b", os.getpid()),
    ]


def whole(item, result):
    return item, os.getpid(), result()


def part(item):
    if item == "bad":
        raise DpackError("cannot do a part", "it is bad", next="do another")
    return item.upper(), os.getpid()


@pytest.mark.usefixtures("two_processors")
def test_the_part_of_the_largest_item_is_done_in_the_other_process():
    (first, here, (upper, there)), (second, *_) = spread(whole, "ab", [LARGE + 1, LARGE], part=part)
    assert (first, upper, second) == ("a", "A", "b")
    assert here == os.getpid() != there


def test_parts_are_done_here_where_there_is_no_other_process():
    me = os.getpid()
    assert spread(whole, "ab", [1, 1], part=part) == [("a", me, ("A", me)), ("b", me, ("B", me))]


@pytest.mark.usefixtures("two_processors")
def test_the_error_of_a_part_is_that_of_its_item():
    with pytest.raises(DpackError, match="cannot do a part"):
        spread(whole, ["bad", "good"], [LARGE + 1, LARGE], part=part)


def fatal(item):
    """Replaced by the test."""


@pytest.mark.usefixtures("two_processors")
def test_a_part_whose_process_was_ended_is_done_here(monkeypatch):
    me = os.getpid()

    def once(item):
        return os._exit(1) if os.getpid() != me else item.upper()

    monkeypatch.setattr(sys.modules[__name__], "fatal", once)
    monkeypatch.setattr(once, "__qualname__", "fatal")
    with pytest.raises(DpackError, match="the process that did it was ended") as raised:
        spread(whole, ["first", "second"], [LARGE + 1, LARGE], part=once)
    assert "second" in raised.value.what


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.usefixtures("two_processors")
def test_what_waits_is_called_here_for_each_item_that_is_done(size):
    seen = []
    items = ["8.6", "large", "9.0"]
    with pytest.raises(DpackError, match="'large'"):
        spread(Arch.parse, items, [size, size, size + 1], wait=lambda item: seen.append((item, os.getpid())))
    assert sorted(seen) == [("8.6", os.getpid()), ("9.0", os.getpid())]


def test_what_fails_while_it_waits_is_the_error_of_its_item():
    def wait(item):
        raise DpackError(f"cannot wait for {item}", "no", next="go")

    with pytest.raises(DpackError, match="cannot wait for a"):
        spread(len, "ab", [1, 1], wait=wait)
