from __future__ import annotations

from pathlib import Path

import pytest

from packager.account.licence import licence_files, licence_texts
from packager.account.origin import Origin, OriginKind, origins


def one(host, root="/") -> Origin:
    return origins([str(host)], str(root))[str(host)]


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def wheel(site: Path, name: str, version: str, *files: str, metadata: str | None = None) -> Path:
    """A distribution in ``site`` whose RECORD lists ``files``; its dist-info directory."""
    info = site / f"{name}-{version}.dist-info"
    for file in files:
        put(site / file)
    quoted = [f'"{file}"' if "," in file else file for file in files]
    put(info / "RECORD", "".join(f"{file},sha256=x,1\r\n" for file in quoted))
    put(
        info / "METADATA",
        metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: no\n",
    )
    return info


CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


def test_a_wheel_claims_what_its_record_lists_and_only_that(tmp_path):
    info = wheel(tmp_path, "nvidia_cudnn_cu12", "9.10.2.21", CUDNN, "nvidia/a,b.so")
    wheel(tmp_path, "another", "1", "nvidia/cudnn/lib/other.so")
    stray = put(tmp_path / "nvidia/cudnn/lib/stray.so")
    found = origins([str(tmp_path / CUDNN), str(tmp_path / "nvidia/a,b.so"), str(stray)])
    assert found[str(tmp_path / CUDNN)] == Origin(
        OriginKind.WHEEL, "nvidia-cudnn-cu12", "9.10.2.21", CUDNN, info
    )
    assert found[str(tmp_path / "nvidia/a,b.so")].path == "nvidia/a,b.so"
    assert found[str(stray)] == Origin(OriginKind.FILE, "stray.so", "", "stray.so", stray.parent)


@pytest.mark.parametrize(
    ("metadata", "name", "version"),
    [
        ("Name: Nvidia.CuDNN_cu12\nVersion: 9.1\n", "nvidia-cudnn-cu12", "9.1"),
        ("Summary: neither\n\nName: body\nVersion: 0\n", "nvidia-cudnn-cu12", "9.10"),
    ],
)
def test_name_and_version_come_from_metadata_or_else_from_the_directory(tmp_path, metadata, name, version):
    wheel(tmp_path, "nvidia_cudnn_cu12", "9.10", CUDNN, metadata=metadata)
    found = one(tmp_path / CUDNN)
    assert (found.name, found.version) == (name, version)


def test_without_metadata_the_directory_names_the_distribution(tmp_path):
    (wheel(tmp_path, "some_lib", "2.0", CUDNN) / "METADATA").unlink()
    assert str(one(tmp_path / CUDNN)) == "some-lib 2.0"


def test_the_nearest_distribution_wins(tmp_path):
    wheel(tmp_path, "outer", "1", f"inner/{CUDNN}")
    wheel(tmp_path / "inner", "inner", "2", CUDNN)
    found = one(tmp_path / "inner" / CUDNN)
    assert (found.name, found.path) == ("inner", CUDNN)


def debian(root: Path) -> None:
    """A sysroot with merged /usr, whose zlib1g still lists its file under /lib, as Debian 12 does."""
    info = root / "var/lib/dpkg/info"
    put(info / "zlib1g:arm64.list", "/.\n/lib\n/lib/aarch64-linux-gnu/libz.so.1.2.13\n")
    put(info / "zlib1g:amd64.list", "/.\n/lib/x86_64-linux-gnu/libz.so.1.2.13\n")
    put(info / "libfoo1.list", "/usr/lib/libfoo.so.1\n/usr/lib/libfoo.so.1.0\n")
    put(
        root / "var/lib/dpkg/status",
        "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:9.9\n\n"
        "Package: zlib1g\nArchitecture: arm64\nDescription: x\n Version: 0\nVersion: 1:1.2.13.dfsg-1\n\n"
        "Package: libfoo1\nArchitecture: all\nVersion: 1.0-2\n",
    )


@pytest.mark.parametrize(
    ("inside", "name", "version", "listed"),
    [
        (
            "usr/lib/aarch64-linux-gnu/libz.so.1.2.13",
            "zlib1g",
            "1:1.2.13.dfsg-1",
            "/lib/aarch64-linux-gnu/libz.so.1.2.13",
        ),
        (
            "usr/lib/x86_64-linux-gnu/libz.so.1.2.13",
            "zlib1g",
            "1:9.9",
            "/lib/x86_64-linux-gnu/libz.so.1.2.13",
        ),
        ("usr/lib/libfoo.so.1.0", "libfoo1", "1.0-2", "/usr/lib/libfoo.so.1.0"),
    ],
)
def test_a_debian_package_owns_what_its_list_names(tmp_path, inside, name, version, listed):
    debian(tmp_path)
    about = tmp_path / "usr/share/doc" / name
    expected = Origin(OriginKind.DEBIAN, name, version, listed, about)
    assert one(tmp_path / inside, tmp_path) == expected


def test_two_files_that_differ_by_usr_alone_keep_their_own_package(tmp_path):
    put(tmp_path / "var/lib/dpkg/info/a.list", "/lib/x.so\n")
    put(tmp_path / "var/lib/dpkg/info/b.list", "/usr/lib/x.so\n")
    put(tmp_path / "var/lib/dpkg/status")
    hosts = [str(tmp_path / "lib/x.so"), str(tmp_path / "usr/lib/x.so")]
    found = origins(hosts, str(tmp_path))
    assert [(found[host].name, found[host].version) for host in hosts] == [("a", ""), ("b", "")]


def test_a_file_outside_of_the_sysroot_belongs_to_none_of_its_packages(tmp_path):
    debian(tmp_path / "root")
    assert one("/usr/lib/libfoo.so.1.0", tmp_path / "root").kind is OriginKind.FILE


def test_no_data_base_and_a_damaged_record_claim_nothing(tmp_path):
    info = wheel(tmp_path, "broken", "1", CUDNN)
    (info / "RECORD").unlink()
    (info / "RECORD").mkdir()
    assert one(tmp_path / CUDNN, tmp_path).kind is OriginKind.FILE


def names(origin: Origin) -> list[str]:
    return [path.relative_to(origin.about).as_posix() for path in licence_files(origin)]


def test_licence_texts_of_a_wheel_a_package_and_a_plain_file(tmp_path):
    info = wheel(tmp_path, "lib", "1", CUDNN)
    for name in ("licenses/LICENSE", "licenses/third/NOTICE.txt", "License.txt", "licence.py", "WHEEL"):
        put(info / name, name)
    debian(tmp_path)
    put(tmp_path / "usr/share/doc/libfoo1/copyright")
    put(tmp_path / "usr/share/doc/libfoo1/changelog.gz")
    plain = put(tmp_path / "opt/libplain.so.1")
    for name in ("COPYING", "LICENSE-MIT", "EULA.txt", "licensed.txt", "README"):
        put(tmp_path / "opt" / name)
    own, package, file = (
        one(tmp_path / path, tmp_path) for path in (CUDNN, "usr/lib/libfoo.so.1.0", "opt/libplain.so.1")
    )
    assert names(own) == ["License.txt", "licenses/LICENSE", "licenses/third/NOTICE.txt"]
    assert names(package) == ["copyright"]
    assert names(file) == ["COPYING", "EULA.txt", "LICENSE-MIT"]
    assert file.path == plain.name
    texts = licence_texts([package, own, own])
    assert [text.path for text in texts] == [
        "share/licenses/lib/LICENSE",
        "share/licenses/lib/License.txt",
        "share/licenses/lib/third/NOTICE.txt",
        "share/licenses/libfoo1/copyright",
    ]
    assert texts[0].source.read_text(encoding="utf-8") == "licenses/LICENSE"


def test_a_package_without_its_copyright_file_has_no_licence_text(tmp_path):
    debian(tmp_path)
    assert licence_files(one(tmp_path / "usr/lib/libfoo.so.1.0", tmp_path)) == ()
