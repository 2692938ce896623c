"""The licence texts that stand beside a library, and where they go in the bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packager.account.origin import Origin, OriginKind

_NAME = re.compile(r"(licen[cs]es?|copying|copyright|notice|eula)([-_. ].*)?", re.IGNORECASE)
_CODE = frozenset({".c", ".cc", ".cpp", ".h", ".hpp", ".js", ".o", ".py", ".pyc", ".rs", ".so"})


@dataclass(frozen=True, slots=True)
class LicenceText:
    """One licence text: its path in the bundle, the file on this machine, and whose it is."""

    path: str
    source: Path
    origin: Origin


def licence_files(origin: Origin) -> tuple[Path, ...]:
    """The licence texts of one origin, sorted; none where nothing stands beside the library.

    A wheel has them in its dist-info directory (PEP 639's ``licenses/`` or the older flat files), a Debian
    package in /usr/share/doc/PACKAGE/copyright (Debian policy 12.5), a plain file in its own directory.
    """
    if origin.kind is OriginKind.DEBIAN:
        copyright_file = origin.about / "copyright"
        return (copyright_file,) if copyright_file.is_file() else ()
    beside = [path for path in _children(origin.about) if _is_licence(path)]
    if origin.kind is OriginKind.WHEEL:
        beside += [path for path in (origin.about / "licenses").rglob("*") if path.is_file()]
    return tuple(sorted(beside))


def licence_texts(origins: Iterable[Origin]) -> tuple[LicenceText, ...]:
    """The texts of all origins, at ``share/licenses/DISTRIBUTION/``, each once, sorted by that path."""
    found: dict[str, LicenceText] = {}
    for text in (text for origin in origins for text in _placed(origin)):
        found.setdefault(text.path, text)
    return tuple(found[path] for path in sorted(found))


def _placed(origin: Origin) -> Iterator[LicenceText]:
    for source in licence_files(origin):
        inside = source.relative_to(origin.about).as_posix().removeprefix("licenses/")
        yield LicenceText(f"share/licenses/{origin.name}/{inside}", source, origin)


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _is_licence(path: Path) -> bool:
    return bool(_NAME.fullmatch(path.name)) and path.suffix.lower() not in _CODE and path.is_file()
