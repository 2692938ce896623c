"""Writes a bundle, deterministically and whole or not at all.

item        what goes in (Item) and what was written (Entry)
format      directory or tar, compressed how, with which time
pipeline    reads each file once; hashes and writes it at the same time
compress    zstd and gzip on many threads, with the same bytes for any number of them
archive     tar; directory: files in place
bundle      all of these together: :func:`write`
"""

from packager.emit.bundle import Written, write
from packager.emit.format import EPOCH, Format, epoch_of, format_of, level_of, top_of
from packager.emit.item import Entry, Item, Source, in_order

__all__ = [
    "EPOCH",
    "Entry",
    "Format",
    "Item",
    "Source",
    "Written",
    "epoch_of",
    "format_of",
    "in_order",
    "level_of",
    "top_of",
    "write",
]
