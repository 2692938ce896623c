"""One recipe file to one value. What is wrong with a file is noted in its tables' ``problems``."""

from __future__ import annotations

import re
from pathlib import Path

from packager.recipes.table import Table
from packager.recipes.values import (
    EVERY_FEATURE,
    PROGRAM,
    Component,
    Family,
    Feature,
    Footprint,
    Framework,
    How,
    Licence,
    Loading,
    Model,
    Need,
    Package,
    Part,
    ProvidedBy,
    normalised,
)

SCHEMA = 1

_VERSION = re.compile(r"(\d+(\.\d+)*)?")
_SPECIFIER = re.compile(r"(==|!=|<=|>=|<|>|~=)\d+(\.\d+)*(\.\*)?(,(==|!=|<=|>=|<|>|~=)\d+(\.\d+)*(\.\*)?)*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def check_schema(top: Table) -> None:
    """Complain where a file is written for another version of the format."""
    known = len(top.problems)
    schema = top.whole("schema")
    if len(top.problems) == known and schema != SCHEMA:
        top.complain("schema", f"is {schema}, and this dpack reads {SCHEMA}")


def read_family(top: Table, source: Path) -> Family:
    """``libraries/NAME.toml``."""
    check_schema(top)
    table = top.table("family") or Table({}, top.file, [], "family")
    name = stem(table, source)
    components = tuple(_component(each, name) for each in top.tables("component", required=True))
    family = Family(
        name=name,
        title=table.text("title"),
        about=table.text("about"),
        group=table.text("group"),
        files=table.texts("files"),
        licence=table.text("licence"),
        provided_by=table.choice("provided_by", ProvidedBy, "bundle"),
        one_version=table.flag("one_version", default=False),
        packages=tuple(_package(each) for each in table.tables("package")),
        components=components,
        source=source,
    )
    close(table, top)
    return family


def _component(table: Table, family: str) -> Component:
    files = table.texts("files")
    serves = table.texts("serves")
    component = Component(
        family=family,
        name=_identifier(table),
        about=table.text("about"),
        files=files,
        serves=serves,
        need=table.choice("need", Need),
        without=table.text("without"),
        symbols=table.texts("symbols", ()),
        since=_version(table, "since"),
        until=_version(table, "until"),
        loaded=tuple(
            loading
            for each in table.tables("loaded", required=True)
            for loading in _loadings(each, family, files, serves)
        ),
        evidence=table.text("evidence"),
    )
    if not component.loaded and table.has("loaded"):
        table.complain("loaded", "must not be empty: nobody could load this component")
    table.close()
    return component


def _loadings(table: Table, family: str, files: tuple[str, ...], serves: tuple[str, ...]) -> list[Loading]:
    how = table.choice("how", How)
    names = table.texts("names", files)
    exact = table.flag("exact", default=False)
    asked_for = table.texts("serves", serves)
    if EVERY_FEATURE not in serves and not set(asked_for) <= set(serves):
        table.complain("serves", f"must be among those of the component, {', '.join(serves)}")
    loaders = table.text_or_texts("by")
    table.close()
    return [Loading(_id(loader, family), how, names, exact, asked_for) for loader in loaders]


def _id(loader: str, family: str) -> str:
    return loader if loader == PROGRAM or ":" in loader else f"{family}:{loader}"


def _package(table: Table) -> Package:
    cuda = table.whole("cuda") if table.has("cuda") else None
    versions = table.text("versions", "")
    if versions and not _SPECIFIER.fullmatch(versions):
        table.complain("versions", f'must be a version specifier such as ">=9,<10", not "{versions}"')
    name = table.text("name")
    if name != normalised(name):
        table.complain("name", f'must be "{normalised(name)}", as package indexes write it, not "{name}"')
    package = Package(name, cuda, table.texts("sonames"), versions)
    table.close()
    return package


def read_model(top: Table, source: Path) -> Model:
    """``models/NAME.toml``; ``features`` are its own only, see :func:`references.close_models`."""
    check_schema(top)
    table = top.table("model") or Table({}, top.file, [], "model")
    includes = table.texts("includes", ())
    model = Model(
        name=stem(table, source),
        title=table.text("title"),
        about=table.text("about"),
        features=frozenset(table.texts("features", () if includes else None)),
        includes=includes,
        source=source,
    )
    close(table, top)
    return model


def read_framework(top: Table, source: Path) -> Framework:
    """``frameworks/NAME.toml``."""
    check_schema(top)
    table = top.table("framework") or Table({}, top.file, [], "framework")
    framework = Framework(
        name=stem(table, source),
        title=table.text("title"),
        about=table.text("about"),
        gpu=_footprint(top, "gpu"),
        cpu=_footprint(top, "cpu"),
        source=source,
    )
    close(table, top)
    return framework


def _footprint(top: Table, key: str) -> Footprint | None:
    table = top.table(key, required=False)
    if table is None:
        return None
    parts = []
    for each in table.tables("part"):
        parts.append(Part(each.text("title"), each.whole("bytes")))
        each.close()
    footprint = Footprint(
        bytes=table.whole("bytes"),
        counts=table.text("counts"),
        source=table.text("source"),
        date=table.text("date"),
        parts=tuple(parts),
    )
    table.close()
    return footprint


def read_features(top: Table) -> list[Feature]:
    """``features.toml``: in ``[features]`` a sentence for each feature."""
    check_schema(top)
    table = top.table("features") or Table({}, top.file, [], "features")
    features = [Feature(name, table.text(name)) for name in table.names()]
    top.close()
    return features


def read_licences(top: Table) -> list[Licence]:
    """``licences.toml``: a table ``[licences.NAME]`` for each class of licence."""
    check_schema(top)
    table = top.table("licences") or Table({}, top.file, [], "licences")
    licences = []
    for name in table.names():
        each = table.table(name)
        if each is None:
            continue
        licences.append(
            Licence(
                name=name,
                title=each.text("title"),
                modify=each.flag("modify"),
                redistribute=each.flag("redistribute"),
                note=each.text("note"),
                source=each.text("source"),
            )
        )
        each.close()
    top.close()
    return licences


def stem(table: Table, source: Path) -> str:
    """The name that the file gives, which must be the file's own without ``.toml``."""
    name = table.text("name")
    if name and name != source.stem:
        table.complain("name", f'must be "{source.stem}", as the file is called, not "{name}"')
    return source.stem


def _identifier(table: Table) -> str:
    name = table.text("name")
    if name and not _NAME.fullmatch(name):
        table.complain("name", f'must be of letters, digits, "-" and "_", not "{name}"')
    return name


def _version(table: Table, key: str) -> str:
    version = table.text(key, "")
    if not _VERSION.fullmatch(version):
        table.complain(key, f'must be a version such as "9.24", not "{version}"')
    return version


def close(*tables: Table) -> None:
    """Complain about every key of these tables that was not asked for."""
    for table in tables:
        table.close()
