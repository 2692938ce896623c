"""A TOML table that is read key by key, where everything wrong with it is noted, not only the first thing."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

_NAMES = {str: "a string", int: "an integer", bool: "true or false", list: "an array", dict: "a table"}

T = TypeVar("T")


class Table:
    """One table of one file; ``path`` is where it stands in the file, such as ``component[2]``."""

    __slots__ = ("_asked", "_values", "file", "path", "problems")

    def __init__(self, values: dict[str, Any], file: str, problems: list[str], path: str = "") -> None:
        self._values = values
        self._asked: set[str] = set()
        self.file = file
        self.path = path
        self.problems = problems

    def where(self, key: str = "") -> str:
        """Path of a key from the top of the file."""
        return ".".join(step for step in (self.path, key) if step)

    def complain(self, key: str, message: str) -> None:
        """Note a problem with a key."""
        self.problems.append(f"{self.file}: {self.where(key)}: {message}")

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        self._asked.add(key)
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without a default the key must be there and not be blank."""
        value = self._take(key, str, default, "")
        if (
            default is None
            and key in self._values
            and isinstance(self._values[key], str)
            and not value.strip()
        ):
            self.complain(key, "must not be empty")
        return value

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        """True or false."""
        return self._take(key, bool, default, blank=False)

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number, zero or more."""
        value = self._take(key, int, default, 0)
        if value < 0:
            self.complain(key, f"must not be negative, as {value} is")
        return value

    def texts(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """An array of strings; without a default the key must be there and hold at least one."""
        values = self._take(key, list, None if default is None else list(default), [])
        if default is None and self._values.get(key) == []:
            self.complain(key, "must not be empty")
        for at, value in enumerate(values):
            if not isinstance(value, str) or not value.strip():
                self.complain(
                    f"{key}[{at}]", f"must be {_NAMES[str]} with something in it, not {_shown(value)}"
                )
        return tuple(value for value in values if isinstance(value, str) and value.strip())

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        """A string, or an array of strings where several are meant."""
        return (self.text(key),) if isinstance(self._values.get(key), str) else self.texts(key)

    def choice(self, key: str, choices: Any, default: str | None = None) -> Any:
        """One of a ``Literal``'s strings."""
        allowed: tuple[str, ...] = get_args(choices)
        value = self.text(key, default)
        if value and value not in allowed:
            self.complain(key, f"must be {_listed(allowed)}, not {_shown(value)}{near(value, allowed)}")
        return value if value in allowed else allowed[0]

    def table(self, key: str, *, required: bool = True) -> Table | None:
        """A table inside this one; None where it is not there."""
        if not required and not self.has(key):
            return None
        values = self._take(key, dict, None, {})
        return (
            Table(values, self.file, self.problems, self.where(key))
            if self._values.get(key) is values
            else None
        )

    def tables(self, key: str, *, required: bool = False) -> list[Table]:
        """An array of tables, ``[[key]]``."""
        values = self._take(key, list, None if required else [], [])
        tables = []
        for at, value in enumerate(values):
            if isinstance(value, dict):
                tables.append(Table(value, self.file, self.problems, f"{self.where(key)}[{at}]"))
            else:
                self.complain(f"{key}[{at}]", f"must be {_NAMES[dict]}, not {_shown(value)}")
        return tables

    def names(self) -> list[str]:
        """The keys of a table whose keys are names that the author chose, in the file's order."""
        return list(self._values)

    def close(self) -> None:
        """Complain about each key that nobody asked for: it is misspelt, or not part of the format."""
        known = sorted(self._asked)
        for key in self._values:
            if key not in self._asked:
                self.complain(key, f"unknown key{near(key, known) or '; known are ' + _listed(known, 'and')}")

    def _take(self, key: str, kind: type[T], default: T | None, blank: T) -> T:
        self._asked.add(key)
        if key not in self._values:
            if default is None:
                self.complain(key, f"missing; it must be {_NAMES[kind]}")
                return blank
            return default
        value = self._values[key]
        if type(value) is not kind:
            self.complain(key, f"must be {_NAMES[kind]}, not {_shown(value)}")
            return blank
        return value


def near(name: str, known: Sequence[str]) -> str:
    """A hint at the known name that is most like this one, or nothing."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{_NAMES.get(type(value), 'that')} ({value!r:.40})"


def _listed(names: Sequence[str], joined: Literal["or", "and"] = "or") -> str:
    quoted = [f'"{name}"' for name in names]
    return f" {joined} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
