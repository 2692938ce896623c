from __future__ import annotations

import sys

import pytest
from local_index import wheel_file

from packager.errors import DpackError
from packager.source import fetch, pipconf
from packager.source.redact import redact, with_credentials

CONFIG = """
[global]
index-url = https://mirror.example/simple
extra-index-url =
    https://one.example/simple
    file:///srv/two
find_links = /srv/wheels
trusted-host = one.example
retries = 2
timeout = 30
proxy = http://proxy.example:3128
cert = /etc/ca.pem
client-cert = /etc/client.pem
[install]
no-index = true
[freeze]
timeout = 99
"""


@pytest.fixture
def config_file(monkeypatch, tmp_path):
    path = tmp_path / "pip.conf"
    path.write_text(CONFIG)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))


WHOLE = pipconf.PipConfig(
    index_url="https://mirror.example/simple",
    extra_index_urls=("https://one.example/simple", "file:///srv/two"),
    find_links=("/srv/wheels",),
    no_index=True,
    proxy="http://proxy.example:3128",
    cert="/etc/ca.pem",
    client_cert="/etc/client.pem",
    trusted_hosts=("one.example",),
    timeout=30,
    retries=2,
)


@pytest.mark.usefixtures("config_file")
def test_pip_is_asked_for_its_files():
    assert pipconf.read() == WHOLE


@pytest.mark.usefixtures("config_file")
def test_the_environment_wins_over_files_and_an_explicit_index_over_both(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    assert pipconf.read().index_url == "https://variable.example/simple"
    explicit = pipconf.read("https://explicit.example/simple")
    assert explicit.index_url == "https://explicit.example/simple"
    assert not explicit.no_index
    assert explicit.timeout == 7


def test_pips_configuration_file_leads_to_the_index(index, monkeypatch, tmp_path):
    index.add(wheel_file())
    monkeypatch.delenv("PIP_INDEX_URL")
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert [one.version for one in fetch(["nvidia-demo-cu12"], machine="x86_64")] == ["1.0"]


@pytest.mark.usefixtures("no_pip", "config_file")
def test_where_pip_is_missing_its_variables_count(monkeypatch):
    assert pipconf.read() == pipconf.PipConfig()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example/ https://b.example/")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "")
    found = pipconf.read()
    assert found.extra_index_urls == ("https://a.example/", "https://b.example/")
    assert (found.no_index, found.index_url) == (True, None)


def test_a_broken_pip_configuration_is_told(monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text("not = a section\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(DpackError, match="cannot read pip's configuration") as error:
        pipconf.read()
    assert sys.executable in error.value.next


@pytest.mark.usefixtures("no_pip")
def test_a_timeout_that_is_no_number_is_told(monkeypatch):
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    with pytest.raises(DpackError, match="timeout is 'soon'"):
        pipconf.read()


def test_sections_override_in_pips_order():
    listing = (
        "global.timeout='1'\ninstall.timeout='2'\n:env:.timeout='3'\ndownload.retries='4'\nlist.retries='9'"
    )
    assert pipconf.listed(listing) == {"timeout": "3", "retries": "4"}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("https://user:secret@host/simple/", "https://***@host/simple/"),
        (
            "at https://secret-token@host:8443/x, twice http://u:p@s@h/",
            "at https://***@host:8443/x, twice http://***@h/",
        ),
        ("https://host/file.whl?sig=secret&x=1", "https://host/file.whl?***"),
        ("https://host/a@b/file.whl", "https://host/a@b/file.whl"),
        ("file:///srv/simple", "file:///srv/simple"),
    ],
)
def test_credentials_are_not_printed(text, printed):
    assert redact(text) == printed


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("https://h/f.whl", "https://u:p@h/f.whl"),
        ("https://h:8443/f.whl", "https://h:8443/f.whl"),
        ("http://h/f.whl", "http://h/f.whl"),
        ("https://other/f.whl", "https://other/f.whl"),
        ("https://x@h/f.whl", "https://x@h/f.whl"),
    ],
)
def test_credentials_stay_with_their_host(url, used):
    assert with_credentials(url, "https://u:p@h/simple/demo/") == used
