"""Where missing libraries come from: NVIDIA's redistributable wheels, fetched into a cache.

needs                     which distributions hold the sonames that are missing
wheels ─► requirement     requirement strings and what a wheel requires
       ─► cache           what is there already, locks, records
       ─► index           wheels on pip's indexes and in find-links ─► wheelname: which one is best
       ─► download        resumed and checked ─► transport: HTTP as pipconf says
       ─► unpack          into the cache
merged                    unpacked wheels as one include/ and lib/
parallel, progress        several at once, and how far they are
redact                    addresses without their credentials
"""

from __future__ import annotations

from packager.source.cache import Distribution, default_cache
from packager.source.merged import library_directories, sdk
from packager.source.progress import Bar, NoBar, NoProgress, Progress
from packager.source.wheels import fetch

__all__ = [
    "Bar",
    "Distribution",
    "NoBar",
    "NoProgress",
    "Progress",
    "default_cache",
    "fetch",
    "library_directories",
    "sdk",
]
