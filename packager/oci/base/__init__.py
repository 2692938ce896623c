"""Images to build on: read, unpacked as far as resolving needs, and what they have.

archive   a directory or a tar, its files read in place ─► expand: gzip and zstd
read      index, platform and name ─► image: documents and blobs, checked; dockerarchive: ``docker save``
unpack    layers ─► tree: the file system in memory ─► a sysroot in the cache
reference ``oci:DIR:NAME`` and the others ─► Base
fits      what a plan wants and the base does not have
scratch   the files that make an image run on nothing
"""

from __future__ import annotations

from packager.oci.base.fits import conflicts
from packager.oci.base.image import Image
from packager.oci.base.read import open_image
from packager.oci.base.reference import Base, open_base
from packager.oci.base.scratch import c_library_places, configuration_items
from packager.oci.base.unpack import sysroot_of

__all__ = [
    "Base",
    "Image",
    "c_library_places",
    "configuration_items",
    "conflicts",
    "open_base",
    "open_image",
    "sysroot_of",
]
