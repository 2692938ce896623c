"""What recipes say about each other.

Names that must exist, files that belong to one component, loaders that lead from the program to each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from packager.recipes.host import Host
from packager.recipes.table import near
from packager.recipes.target import Target
from packager.recipes.values import EVERY_FEATURE, PROGRAM, Component, Family, Model


def check_families(
    families: Sequence[Family], features: Collection[str], licences: Collection[str], unread: Collection[str]
) -> Iterator[str]:
    """Every problem between families. ``unread`` names those whose file could not be read at all."""
    known = {component.id for family in families for component in family.components}
    for family in families:
        if family.licence and family.licence not in licences:
            yield f"{family.source}: family.licence: {_unknown('licence', family.licence, licences)}"
        yield from _repeated_names(family)
        for at, component in enumerate(family.components):
            where = f"{family.source}: component[{at}]"
            yield from _unknown_features(component, features, where)
            yield from _unknown_loaders(component, known, unread, where)
    yield from _shared_patterns(families)
    if not unread:
        yield from _unreachable(families)


def check_model_features(models: Sequence[Model], features: Collection[str]) -> Iterator[str]:
    """Features that a model names and ``features.toml`` does not."""
    for model in models:
        for feature in sorted(model.features - set(features)):
            yield f"{model.source}: model.features: {_unknown('feature', feature, features)}"


def check_targets(targets: Sequence[Target], hosts: Sequence[Host], unread: Collection[str]) -> Iterator[str]:
    """Hosts that a target names and that are not there or not of its platform; names that two of a kind have."""
    known = {name: host for host in hosts for name in (host.name, *host.aliases)}
    for target in targets:
        if target.host and target.host not in known and target.host not in unread:
            yield f"{target.source}: target.host: {_unknown('host', target.host, known)}"
        elif target.host in known and target.platform not in known[target.host].platforms:
            yield f"{target.source}: target.host: {target.host} is not known for {target.platform}"
    yield from _shared_aliases("target", targets)
    yield from _shared_aliases("host", hosts)


def _shared_aliases(kind: str, values: Sequence[Target] | Sequence[Host]) -> Iterator[str]:
    owners = {value.name: value.name for value in values}
    for value in values:
        for alias in value.aliases:
            owner = owners.setdefault(alias, value.name)
            if owner != value.name or alias == value.name:
                yield f'{value.source}: {kind}.aliases: "{alias}" means {owner} already'


def close_models(models: Mapping[str, Model], unread: Collection[str], problems: list[str]) -> list[Model]:
    """The models with the features of those that they include, and of those that these include."""
    problems.extend(
        f"{model.source}: model.includes: {_unknown('model', name, models)}"
        for model in models.values()
        for name in model.includes
        if name not in models and name not in unread
    )
    return [
        replace(model, features=_closed(model, models, (model.name,), problems)) for model in models.values()
    ]


def _closed(
    model: Model, models: Mapping[str, Model], trail: tuple[str, ...], problems: list[str]
) -> frozenset[str]:
    features = model.features
    for name in model.includes:
        if name in trail:
            # A cycle is met once from each of its models: the first by name reports it.
            if name == trail[0] == min(trail):
                cycle = " → ".join([*trail, name])
                problems.append(f"{models[name].source}: model.includes: {cycle} is a cycle")
        elif name in models:
            features |= _closed(models[name], models, (*trail, name), problems)
    return features


def _unknown(kind: str, name: str, known: Collection[str]) -> str:
    return f'unknown {kind} "{name}"{near(name, sorted(known))}'


def _repeated_names(family: Family) -> Iterator[str]:
    names = [component.name for component in family.components]
    for at, name in enumerate(names):
        if name and name in names[:at]:
            yield f'{family.source}: component[{at}].name: "{name}" is component[{names.index(name)}] already'


def _unknown_features(component: Component, features: Collection[str], where: str) -> Iterator[str]:
    named = dict.fromkeys(component.serves, "serves")
    for loading in component.loaded:
        named = dict.fromkeys(loading.serves, "loaded.serves") | named
    for feature, key in named.items():
        if feature != EVERY_FEATURE and feature not in features:
            yield f"{where}.{key}: {_unknown('feature', feature, features)}"


def _unknown_loaders(
    component: Component, known: Collection[str], unread: Collection[str], where: str
) -> Iterator[str]:
    for loading in component.loaded:
        if loading.by == PROGRAM or loading.by in known or loading.by.partition(":")[0] in unread:
            continue
        yield f"{where}.loaded: {_unknown('component', loading.by, [*known, PROGRAM])}"


def _shared_patterns(families: Sequence[Family]) -> Iterator[str]:
    """A file that two components claim, or an API function of two components of one family."""
    owners: dict[str, str] = {}
    for family in families:
        for at, component in enumerate(family.components):
            for key, patterns, scope in (
                ("files", component.files, ""),
                ("symbols", component.symbols, family.name),
            ):
                for pattern in patterns:
                    owner = owners.setdefault(f"{key} {scope} {pattern}", component.id)
                    if owner != component.id:
                        yield f"{family.source}: component[{at}].{key}: '{pattern}' belongs to {owner}"


def _unreachable(families: Sequence[Family]) -> Iterator[str]:
    """Components to which no chain of loaders leads from the program."""
    loaders: dict[str, set[str]] = {}
    for component in (each for family in families for each in family.components):
        loaders.setdefault(component.id, set()).update(loading.by for loading in component.loaded)
    waiting = dict(loaders)
    reached = {PROGRAM}
    while found := {each for each, openers in waiting.items() if openers & reached}:
        reached |= found
        for each in found:
            del waiting[each]
    for family in families:
        for at, component in enumerate(family.components):
            openers = loaders[component.id]
            # A missing or unknown loader is a problem that is reported as such.
            if component.id in waiting and openers and openers <= waiting.keys():
                yield (
                    f"{family.source}: component[{at}].loaded: nothing that a program starts with leads to "
                    f"{component.id}; its loaders ({', '.join(sorted(openers))}) wait for each other"
                )
