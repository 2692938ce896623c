"""A blob's bytes on their way into requests: read in windows, hashed once, shown on a bar."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from packager.errors import DpackError
from packager.oci.descriptor import Descriptor
from packager.source.progress import Bar

_PIECE = 1 << 18


class Reader:
    """A blob's file. Each byte is hashed when it is read for the first time; going back is free."""

    def __init__(self, file: BinaryIO, descriptor: Descriptor, bar: Bar) -> None:
        self._file = file
        self._descriptor = descriptor
        self._bar = bar
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._shown = 0

    def window(self, start: int, end: int) -> Window:
        """The bytes from ``start`` up to ``end`` as a request's body."""
        return Window(self, start, end)

    def read(self, position: int, size: int) -> bytes:
        """``size`` bytes or fewer; DpackError where the file ends before its descriptor's size."""
        try:
            self._file.seek(position)
            piece = self._file.read(size)
        except OSError as error:
            raise self.damaged(error.strerror or str(error)) from None
        if size and not piece:
            raise self.damaged(f"it ends after {position:,} of {self._descriptor.size:,} bytes")
        if position <= self._hashed < position + len(piece):
            self._hash.update(memoryview(piece)[self._hashed - position :])
            self._hashed = position + len(piece)
        self.show(position + len(piece))
        return piece

    def show(self, position: int) -> None:
        """Move the bar there, back as well."""
        self._bar.advance(position - self._shown)
        self._shown = position

    def check(self) -> None:
        """DpackError where what was read is not the blob that the descriptor describes. A part that was never
        read, because the registry had it from another upload, is for the registry to check.
        """
        if self._hashed == self._descriptor.size and self._hash.hexdigest() != self._descriptor.hex:
            raise self.damaged("its content has another digest")

    def damaged(self, why: str) -> DpackError:
        """The error about the file."""
        return DpackError(
            f"cannot read the blob {self._descriptor.digest}",
            why,
            next="the bundle is damaged, or changes while it is read: make it anew",
        )


class Window:
    """A part of a blob, as requests wants a body: with a length, and without ``tell``, which it would trust."""

    def __init__(self, reader: Reader, start: int, end: int) -> None:
        self._reader = reader
        self._start = self._position = start
        self._end = end

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.read(_PIECE):
            yield piece

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the window's end."""
        left = self._end - self._position
        piece = self._reader.read(self._position, left if size < 0 else min(size, left))
        self._position += len(piece)
        return piece
