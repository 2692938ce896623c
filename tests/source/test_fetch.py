from __future__ import annotations

import hashlib
import json
import socket

import pytest
from local_index import ARM, X86, LocalIndex, wheel_bytes, wheel_file

from packager.errors import EXIT_USAGE, DpackError
from packager.source import Distribution, default_cache, fetch
from packager.source.cache import entries

pytestmark = pytest.mark.usefixtures("no_pip")

FILE = wheel_file()


def get(*requirements, machine="x86_64", **options):
    return fetch(requirements, machine=machine, **options)


def versions(distributions):
    return [f"{one.name} {one.version} {one.tag}" for one in distributions]


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_wheel_is_fetched_checked_unpacked_and_kept(index, cache, form):
    index.form = form
    content = index.add(FILE)
    (got,) = get("NVIDIA_demo.cu12==1.0")
    assert got == Distribution(
        name="nvidia-demo-cu12",
        version="1.0",
        tag=X86,
        sha256=hashlib.sha256(content).hexdigest(),
        root=cache / "wheels" / FILE.removesuffix(".whl"),
        size=len(content),
    )
    assert (got.root / "nvidia/demo/lib/libdemo.so.1").read_bytes() == b"\x7fELF demo"
    assert list((cache / "downloads").iterdir()) == []
    assert sorted(path.name for path in (cache / "wheels").iterdir()) == [
        got.root.name,
        f"{got.root.name}.json",
    ]
    assert "127.0.0.1" not in (cache / "wheels" / f"{got.root.name}.json").read_text()
    assert [one.distribution for one in entries(cache)] == [got]


def test_what_is_pinned_and_cached_needs_no_network(index):
    index.add(FILE)
    first = get("nvidia-demo-cu12==1.0")
    index.log.clear()
    assert get("nvidia-demo-cu12==1.0") == first
    assert index.log == []


def test_what_is_not_pinned_asks_the_index_and_finds_the_wheel_cached(index):
    index.add(FILE)
    get("nvidia-demo-cu12")
    index.log.clear()
    get("nvidia-demo-cu12")
    assert index.log == [("/simple/nvidia-demo-cu12/", "", "")]
    index.add(wheel_file(version="1.1"))
    assert versions(get("nvidia-demo-cu12")) == [f"nvidia-demo-cu12 1.1 {X86}"]


def test_each_machine_has_its_own_wheel(index, cache):
    index.add(FILE)
    index.add(wheel_file(tag=ARM))
    assert versions(get("nvidia-demo-cu12")) == [f"nvidia-demo-cu12 1.0 {X86}"]
    assert versions(get("nvidia-demo-cu12", machine="aarch64")) == [f"nvidia-demo-cu12 1.0 {ARM}"]
    assert len(entries(cache)) == 2


def test_several_at_once_come_in_the_order_asked(index):
    names = [f"nvidia-part{number}-cu12" for number in range(6)]
    for name in names:
        index.add(wheel_file(name))
    assert [one.name for one in get(*reversed(names))] == names[::-1]


def test_requirements_of_one_project_count_together(index):
    for version in ("1.0", "1.5", "2.0"):
        index.add(wheel_file(version=version))
    assert versions(get("nvidia-demo-cu12>=1", "Nvidia.Demo-cu12<2")) == [f"nvidia-demo-cu12 1.5 {X86}"]


def test_a_marker_is_read_for_the_target(index):
    index.add(wheel_file(tag=ARM))
    marked = "nvidia-demo-cu12; platform_machine == 'aarch64'"
    assert get(marked) == ()
    assert len(get(marked, machine="aarch64")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nvidia demo", "cannot read the requirement 'nvidia demo'"),
        ("nvidia-demo==", "cannot read the requirement"),
        ("nvidia-demo @ https://h/x.whl", "names an address"),
    ],
)
def test_a_string_that_is_no_requirement_is_a_usage_error(text, message):
    with pytest.raises(DpackError, match=message) as error:
        get(text)
    assert error.value.exit == EXIT_USAGE


@pytest.mark.parametrize(
    ("requirement", "machine", "why", "tried"),
    [
        ("nvidia-none", "x86_64", "no index knows this project", "no such project"),
        ("nvidia-demo-cu12>=2", "x86_64", "no version of it matches", f"1.0: {X86}"),
        ("nvidia-demo-cu12", "aarch64", "no wheel of a matching version is for aarch64", f"1.0: {X86}"),
        ("nvidia-demo-cu12==0.9", "x86_64", "for x86_64", "0.9: manylinux_2_17_x86_64 (for one Python only)"),
        ("nvidia-old", "x86_64", "withdrawn", f"1.0: {X86} (yanked)"),
        ("nvidia-new", "x86_64", "only pre-releases", f"1.0rc1: {X86}"),
    ],
)
def test_where_nothing_fits_the_error_lists_what_there_is(index, requirement, machine, why, tried):
    index.add(FILE)
    index.add(wheel_file(version="0.9", python="cp311-cp311", tag="manylinux_2_17_x86_64"))
    index.add(wheel_file("nvidia-old"), yanked=True)
    index.add(wheel_file("nvidia-new", "1.0rc1"))
    with pytest.raises(DpackError, match=why) as error:
        get(requirement, machine=machine)
    assert any(tried in line for line in error.value.tried)
    assert requirement in str(error.value)


def test_a_long_list_of_versions_is_shortened(index):
    for number in range(20):
        index.add(wheel_file(version=f"1.{number}"))
    with pytest.raises(DpackError) as error:
        get("nvidia-demo-cu12>9")
    assert error.value.tried[0].startswith("1.19: ")
    assert error.value.tried[-1] == "and 12 older versions"


def test_offline_takes_what_is_cached(index):
    for version in ("1.0", "2.0"):
        index.add(wheel_file(version=version))
        get(f"nvidia-demo-cu12=={version}")
    index.log.clear()
    assert versions(get("nvidia-demo-cu12", offline=True)) == [f"nvidia-demo-cu12 2.0 {X86}"]
    assert versions(get("nvidia-demo-cu12<2", offline=True)) == [f"nvidia-demo-cu12 1.0 {X86}"]
    with pytest.raises(DpackError, match="nvidia-demo-cu12>2, nvidia-other offline") as error:
        get("nvidia-demo-cu12>2", "nvidia-other", offline=True)
    assert error.value.tried == (
        f"nvidia-demo-cu12 2.0: {X86}",
        f"nvidia-demo-cu12 1.0: {X86}",
        "nvidia-other: nothing in the cache",
    )
    assert index.log == []


def test_a_yanked_wheel_stays_yanked_in_the_cache(index):
    index.add(FILE, yanked=True)
    get("nvidia-demo-cu12==1.0")
    assert len(get("nvidia-demo-cu12==1.0", offline=True)) == 1
    with pytest.raises(DpackError, match="offline"):
        get("nvidia-demo-cu12", offline=True)


def test_an_entry_that_is_not_whole_does_not_count(index, cache):
    index.add(FILE)
    (got,) = get("nvidia-demo-cu12==1.0")
    record = cache / "wheels" / f"{got.root.name}.json"
    record.unlink()
    assert entries(cache) == ()
    assert get("nvidia-demo-cu12==1.0") == (got,)
    record.write_text(json.dumps({"schema": 1, "file": FILE}))
    assert entries(cache) == ()


def test_a_file_of_the_same_name_with_another_hash_replaces_the_cached_one(index):
    index.add(FILE)
    get("nvidia-demo-cu12")
    index.add(FILE, members={"nvidia/demo/lib/libdemo.so.1": b"other"})
    (got,) = get("nvidia-demo-cu12")
    assert (got.root / "nvidia/demo/lib/libdemo.so.1").read_bytes() == b"other"


def test_extra_indexes_are_asked_and_passed_over_where_they_know_nothing(index, monkeypatch, tmp_path):
    index.add(FILE)
    page = tmp_path / "extra" / "nvidia-demo-cu12"
    page.mkdir(parents=True)
    (page / wheel_file(version="2.0")).write_bytes(wheel_bytes(wheel_file(version="2.0")))
    (page / "index.html").write_text(f'<a href="{wheel_file(version="2.0")}">short..&gt;</a>')
    with LocalIndex() as second:
        second.add(wheel_file(version="1.7"))
        urls = [second.url, (tmp_path / "extra").as_uri(), (tmp_path / "absent").as_uri()]
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", " ".join(urls))
        assert versions(get("nvidia-demo-cu12<1.5")) == [f"nvidia-demo-cu12 1.0 {X86}"]
        assert versions(get("nvidia-demo-cu12<2")) == [f"nvidia-demo-cu12 1.7 {X86}"]
        assert versions(get("nvidia-demo-cu12")) == [f"nvidia-demo-cu12 2.0 {X86}"]
        with pytest.raises(DpackError, match="no index knows this project") as error:
            get("nvidia-none")
    assert len(error.value.tried) == 4


def test_find_links_may_be_a_directory_and_no_index_leaves_only_them(index, monkeypatch, tmp_path):
    index.add(wheel_file(version="2.0"))
    content = wheel_bytes(FILE)
    (tmp_path / FILE).write_bytes(content)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    (got,) = get("nvidia-demo-cu12")
    assert (got.version, got.sha256) == ("1.0", hashlib.sha256(content).hexdigest())
    assert (tmp_path / FILE).read_bytes() == content
    assert index.log == []
    assert versions(get("nvidia-demo-cu12", index_url=index.url)) == [f"nvidia-demo-cu12 2.0 {X86}"]


def test_a_proxy_is_used_and_a_trusted_host_may_speak_plain_http(index, monkeypatch):
    index.add(FILE)
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv("PIP_PROXY", index.url.removesuffix("/simple"))
    with pytest.raises(DpackError) as error:
        get("nvidia-demo-cu12")
    assert "trusted-host" in error.value.tried[0]
    assert index.log == []
    monkeypatch.setenv("PIP_TRUSTED_HOST", "index.invalid")
    assert len(get("nvidia-demo-cu12")) == 1


def test_no_network_is_told_without_credentials(monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@127.0.0.1:{port}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(DpackError, match=r"cannot fetch nvidia-demo-cu12.*refused") as error:
            get("nvidia-demo-cu12")
    text = "\n".join(error.value.lines())
    assert all(word in text for word in ("--offline", "PIP_INDEX_URL", "proxy"))
    assert "secret" not in text


def test_a_page_that_is_no_index_page_is_told(index, monkeypatch):
    monkeypatch.setattr(index, "page", lambda _: ("application/vnd.pypi.simple.v1+json", b'{"files": 3}'))
    with pytest.raises(DpackError, match="is not a page of a package index"):
        get("nvidia-demo-cu12")


def test_the_cache_is_where_the_variable_says_or_in_the_users_cache(monkeypatch, tmp_path):
    assert default_cache() == tmp_path / "cache"
    monkeypatch.delenv("DPACK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "dpack"


def test_a_cache_that_cannot_be_written_is_told(index, tmp_path):
    index.add(FILE)
    (tmp_path / "file").touch()
    with pytest.raises(DpackError, match="cannot use the cache") as error:
        get("nvidia-demo-cu12", cache=tmp_path / "file" / "below")
    assert "DPACK_CACHE" in error.value.next
