"""Images: layers, configs and manifests by the OCI image specification, version 1.1.

descriptor  the nouns: media types, Platform, Descriptor, digests; Base, an image to build on
layer       one layer: a deterministic tar, compressed, with digest and diff_id
layout      where blobs go: a directory in the image layout, or a tar of it
below       what an image takes over from its base
documents   config, manifest, index, and the account that refers to the image; pure
write       all of these together: write_oci, write_layer_file
base/       bases: read from a layout, an archive or a registry, unpacked, or scratch
"""
