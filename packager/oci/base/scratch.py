"""The files that make an image run on nothing: the C library, its loader, and what supplies the driver.

- The loader stands at the program's PT_INTERP, which is absolute: the kernel looks nowhere else. The C library
  stands in the loader's own first directory, as on any system, and not beside the bundle's libraries: whatever
  search path a library has, the loader ends there, and a library that may not be changed finds libm too.
- The loader needs no ld.so.cache. The container toolkit does: it mounts the driver's libraries and runs the
  host's ldconfig on the container with ``-f /etc/ld.so.conf -C /etc/ld.so.cache``. Before 1.18 it does not update
  a cache that is not there (nvidia-container-toolkit, pull request 1326: "Always update the ldcache in the
  container"), and needs /etc/ld.so.conf.d, which the same request names as what made images without it fail. So
  an empty cache, which the loader passes over, and that directory stand in the image.
- Where the driver's libraries go depends on the host: by CDI to the paths that they have there; by
  libnvidia-container (src/nvc_container.c) to /usr/lib/<triplet> where the image has /etc/debian_version, and to
  /usr/lib64 where, as here, it has not. ldconfig knows the directories of its own distribution alone, so a file
  in /etc/ld.so.conf.d names both. What CDI and Jetson's CSV lists mount elsewhere, the toolkit itself adds there.
- Not needed: /etc/passwd and nsswitch.conf (glibc then asks files and DNS, whose modules are in libc.so.6 since
  2.34; before, the recipe keeps them), locales ("C" is built in), gconv (only iconv opens it), /proc, /sys, /dev,
  /etc/resolv.conf and /etc/hosts (the runtime mounts them: OCI runtime specification, "Default Filesystems").
  A program that reads time zones or TLS certificates brings its own.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

from packager.emit.item import Item
from packager.plan import Action, Decision, Plan
from packager.resolve.closure import Source
from packager.resolve.provided import C_LIBRARY_GROUP
from packager.resolve.search import Loader

_CONF = "etc/ld.so.conf"
_CONF_D = "etc/ld.so.conf.d"
_CACHE = "etc/ld.so.cache"


def c_library_places(d: Decision, loader: Loader) -> tuple[str, ...]:
    """Where a kept file of the C library stands in the image; none for any other file, which goes into lib/.

    ``d`` is of a plan by the recipes of ``with_own_c_library``.
    """
    if d.action is not Action.KEEP or d.group != C_LIBRARY_GROUP or d.object is None:
        return ()
    started = [edge.name for edge in d.edges if edge.evidence.source is Source.INTERPRETER]
    names = started or [f"{loader.defaults[0]}/{name}" for name in d.file_names]
    return tuple(sorted({name.lstrip("/") for name in names}))


def configuration_items(plan: Plan, loader: Loader) -> tuple[Item, ...]:
    """What else stands in an image on nothing: /tmp, which programs take for granted, and where ``plan`` keeps
    glibc, its loader's configuration.
    """
    temporary = Item("tmp", stat.S_IFDIR | 0o1777, b"")
    glibc = any(d.family is not None and d.family.name == "glibc" for d in plan.of(Action.KEEP))
    return (*(_configuration(loader) if glibc else ()), temporary)


def _configuration(loader: Loader) -> Iterator[Item]:
    driver = [f"/usr/lib/{loader.machine.triplet}", "/usr/lib64"]
    listed = "".join(f"{directory}\n" for directory in driver)
    yield Item(_CONF, 0o644, b"include /etc/ld.so.conf.d/*.conf\n")
    yield Item(f"{_CONF_D}/driver.conf", 0o644, listed.encode())
    yield Item(_CACHE, 0o644, b"")
