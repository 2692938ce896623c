"""What stands between us and a registry: challenges, pauses, proxies."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from fake_registry import QUICK, FakeRegistry

from packager.registry.challenge import choose, parse_challenges
from packager.registry.wire import Ask, Insecure, Patience, Wire, open_wire, origin_of
from packager.source.parallel import Stopped


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ('Basic realm="a, b"', [("basic", {"realm": "a, b"})]),
        (
            'Bearer realm="https://t.x/token",service="s",scope="repository:a/b:pull,push"',
            [("bearer", {"realm": "https://t.x/token", "service": "s", "scope": "repository:a/b:pull,push"})],
        ),
        ('bearer REALM = "x" , service=y', [("bearer", {"realm": "x", "service": "y"})]),
        (r'Bearer realm="a\"b"', [("bearer", {"realm": 'a"b'})]),
        ('Negotiate, Basic realm="a"', [("negotiate", {}), ("basic", {"realm": "a"})]),
        ('Basic realm="a", Bearer realm="b"', [("basic", {"realm": "a"}), ("bearer", {"realm": "b"})]),
        ('Bearer realm="unfinished', [("bearer", {})]),
        (',,"', []),
    ],
)
def test_challenges(header, expected):
    found = parse_challenges(header)
    assert [(challenge.scheme, dict(challenge.parameters)) for challenge in found] == expected


def test_a_token_is_preferred():
    chosen = choose(parse_challenges('Basic realm="a", Bearer realm="b"'))
    assert chosen
    assert chosen.get("realm") == "b"
    assert choose(parse_challenges("Negotiate")) is None


class Waiting:
    """An event that notes how long it was waited for."""

    def __init__(self):
        self.waited = []

    def wait(self, seconds):
        self.waited.append(seconds)

    def is_set(self):
        return False


@pytest.mark.parametrize(
    ("headers", "shortest", "longest"),
    [
        ({}, 2, 2),
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "1"}, 2, 2),
        ({"Retry-After": "3600"}, 60, 60),
        ({"Retry-After": format_datetime(datetime.now(UTC) + timedelta(hours=1))}, 60, 60),
        ({"Retry-After": format_datetime(datetime.now(UTC) - timedelta(hours=1))}, 2, 2),
        ({"Retry-After": "soon"}, 2, 2),
    ],
)
def test_pauses(headers, shortest, longest):
    waiting = Waiting()
    Wire(None, frozenset(), Patience(pause=1), waiting).pause(2, headers)
    assert shortest <= waiting.waited[0] <= longest


def test_pauses_grow_to_a_limit():
    waiting = Waiting()
    wire = Wire(None, frozenset(), Patience(), waiting)
    for failures in range(1, 8):
        wire.pause(failures)
    assert waiting.waited == [0.25, 0.5, 1, 2, 4, 8, 8]


def test_a_pause_ends_when_called_off():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        Wire(None, frozenset(), Patience(pause=1e6, longest=1e6), stop).pause(1)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://h.x/v2/", True),
        ("http://h.x/v2/", True),
        ("http://h.x:5000/v2/", True),
        ("http://p.x:1/v2/", True),
        ("http://p.x:2/v2/", False),
        ("http://p.x/v2/", False),
        ("http://localhost/v2/", False),
        ("http://127.0.0.1/v2/", False),
        ("ftp://h.x/v2/", False),
        ("", False),
    ],
)
def test_addresses_without_tls(url, allowed):
    wire = Wire(None, frozenset({"h.x", "p.x:1"}), QUICK, threading.Event())
    assert wire.allowed(url) is allowed
    if url and not allowed:
        with pytest.raises(Insecure):
            wire.ask(Ask("GET", url))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h.x/a", "https://H.x:443/b", True),
        ("http://h.x", "http://h.x:80/", True),
        ("https://h.x", "http://h.x", False),
        ("https://h.x", "https://h.x:5000", False),
        ("https://h.x", "https://h.x.evil", False),
        ("https://[::1]:443/", "https://[::1]/", True),
    ],
)
def test_origins(one, other, same):
    assert (origin_of(one) == origin_of(other)) is same


def test_the_proxy_of_the_environment_is_used(registry, monkeypatch):
    with FakeRegistry().serving() as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.host}")
        named = frozenset({"h.invalid"})
        with open_wire(named, QUICK, threading.Event()) as wire:
            wire.ask(Ask("GET", "http://h.invalid/v2/"))
        assert [path for _, path, _ in proxy.log] == ["http://h.invalid/v2/"]
    assert not registry.log
