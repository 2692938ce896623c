"""Credentials in the files and programs of docker and podman."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from packager.errors import DpackError
from packager.registry.credentials import Credential, find_credential
from packager.registry.program import ask_program


def auth(user, password):
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path, **config):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def config(nobody):
    return lambda **config: write(nobody / ".docker/config.json", **config)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Writes a credential program; each logs what it was asked for."""

    def make(name, script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / f"docker-credential-{name}"
        path.write_text(f'#!/bin/sh\nread -r server || :\necho "$1 $server" >> {tmp_path}/asked\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return make


def found(host="h.x:5000", repository="team/app"):
    credential = find_credential(host, repository)
    return credential and (credential.username, credential.password)


def test_without_files_there_are_none():
    assert find_credential("h.x", "app") is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"h.x:5000": auth("me", "a:b")}, ("me", "a:b")),
        ({"https://h.x:5000": auth("me", "pw")}, ("me", "pw")),
        ({"https://h.x:5000/v1/": auth("me", "pw")}, ("me", "pw")),
        ({"h.x:5000": {"username": "me", "password": "é"}}, ("me", "é")),
        ({"h.x:5000": auth("me", "pw\0\0")}, ("me", "pw")),
        ({"h.x": auth("me", "pw")}, None),
        ({"x:5000": auth("me", "pw")}, None),
        ({"h.x:5000": {}}, None),
        ({"h.x:5000": auth("host", "1"), "h.x:5000/team": auth("team", "2")}, ("team", "2")),
        ({"h.x:5000": auth("host", "1"), "h.x:5000/team/app": auth("app", "3")}, ("app", "3")),
        ({"h.x:5000": auth("host", "1"), "h.x:5000/other": auth("other", "2")}, ("host", "1")),
    ],
)
def test_entries_of_a_file(config, entries, expected):
    config(auths=entries)
    assert found() == expected


def test_the_key_that_docker_uses_for_its_own_registry(config):
    key = "https://index.docker.io/v1/"
    domain = key.split("/")[2].partition(".")[2]
    config(auths={key: auth("me", "pw")})
    assert found(f"any.{domain}") == found(domain) == ("me", "pw")
    assert found(f"{domain}.example.com") is None


def test_an_identity_token(config):
    config(auths={"h.x": {**auth("me", ""), "identitytoken": "long"}})
    credential = find_credential("h.x", "app")
    assert credential
    assert credential.identity_token == "long"


def test_files_in_their_order(nobody, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "named.json"))
    places = [
        nobody / ".config/containers/auth.json",
        tmp_path / "run/containers/auth.json",
        nobody / ".docker/config.json",
        tmp_path / "named.json",
    ]
    for place in places:
        write(place, auths={"h.x": auth(place.parent.name, "pw")})
        credential = find_credential("h.x", "app")
        assert credential
        assert credential.source == str(place)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"auths": [1]}', '{"auths": {"h.x": {"auth": "s3cret!"}}}', "\xff"]
)
def test_a_file_that_cannot_be_read(nobody, text):
    path = write(nobody / ".docker/config.json")
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DpackError) as refused:
        find_credential("h.x", "app")
    assert str(path) in refused.value.what
    assert "s3cret" not in "\n".join(refused.value.lines())


def test_credentials_are_not_printed():
    text = repr(Credential("file", "me", "secret", "token"))
    assert text == "Credential(source='file')"


def test_a_program_for_one_host(config, program, tmp_path):
    program("own", """echo '{"ServerURL":"h.x:5000","Username":"me","Secret":"pw"}'""")
    config(credHelpers={"h.x:5000": "own"}, credsStore="absent", auths={"h.x:5000": {}})
    assert found() == ("me", "pw")
    assert (tmp_path / "asked").read_text() == "get h.x:5000\n"


def test_the_program_for_all_hosts(config, program):
    program("store", """echo '{"Username":"<token>","Secret":"long"}'""")
    config(credsStore="store", auths={"h.x:5000": {}})
    credential = find_credential("h.x:5000", "app")
    assert credential
    assert (credential.identity_token, credential.source) == ("long", "docker-credential-store")


def test_a_program_that_has_none(config, program):
    program("store", "echo credentials not found in native keychain; exit 1")
    config(credsStore="store")
    assert found() is None


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo the keychain is locked: s3cret; exit 3", "docker-credential-odd exits with 3"),
        ("echo s3cret", "does not answer with Username and Secret in JSON"),
        ("echo '[]'", "does not answer with Username and Secret in JSON"),
        ("""echo '{"Username":"s3cret","Secret":1}'""", "as texts"),
        (r"printf '\377'", "not text"),
    ],
)
def test_a_program_that_fails(config, program, script, why):
    program("odd", script)
    config(credsStore="odd")
    with pytest.raises(DpackError, match=why) as refused:
        found()
    assert "h.x:5000" in refused.value.what
    assert "s3cret" not in "\n".join(refused.value.lines())


def test_a_program_that_does_not_end(program):
    program("slow", "exec sleep 600")
    with pytest.raises(DpackError, match="did not answer within"):
        ask_program("slow", "h.x", Path("config.json"), seconds=0.1)


@pytest.mark.parametrize(("name", "why"), [("absent", "not on the PATH"), ("../evil", "is no name")])
def test_a_program_that_is_not_there(config, name, why):
    path = config(credsStore=name)
    with pytest.raises(DpackError, match=why) as refused:
        found()
    assert str(path) in refused.value.why
