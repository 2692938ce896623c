"""``dpack push``: an image to a registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packager.cli.printing import print_json
from packager.cli.progress import Bars

if TYPE_CHECKING:
    from packager.registry import Pushed


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
@click.argument("reference", metavar="REF")
@click.option(
    "--plain-http",
    multiple=True,
    metavar="HOST",
    help="Talk to HOST (or HOST:PORT) without TLS: a registry, or the server of its tokens. Repeatable.",
)
@click.option(
    "--mount-from",
    multiple=True,
    metavar="REPO",
    help="Let the registry take blobs from REPO, another repository of its own, where it has them. "
    "Repeatable. The repository of the image's base is asked in any case.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was pushed as JSON.")
def push(
    bundle: Path,
    reference: str,
    plain_http: tuple[str, ...],
    mount_from: tuple[str, ...],
    as_json: bool,
) -> None:
    """Push an image to a registry: only what the registry does not have, and the tag last.

    BUNDLE is what `dpack bundle --format oci` or `oci-archive` wrote; other tools' OCI layouts do as well. REF is
    HOST/REPOSITORY:TAG. The account that is attached to the image goes with it.

    \b
      dpack bundle ./mnist --model cnn --format oci-archive -o mnist.oci.tar
      dpack push mnist.oci.tar registry.example.com/edge/mnist:1.0
      dpack push mnist.oci.tar localhost:5000/edge/mnist:1.0 --plain-http localhost:5000

    Credentials are the ones that docker login and podman login keep, credential programs included; proxies and
    certificates come from HTTPS_PROXY and REQUESTS_CA_BUNDLE. A push that was interrupted, or whose registry went
    away, is completed by the same command.
    """
    from packager.registry import Access, Reference, parse_repository
    from packager.registry import push as push_image
    from packager.registry.layout import open_layout

    to = Reference.parse(reference)
    others = tuple(parse_repository(name, to.host) for name in mount_from)
    layout = open_layout(bundle)
    with Bars() as bars:
        pushed = push_image(
            layout, to, access=Access(frozenset(plain_http)), mount_from=others, progress=bars
        )
    if as_json:
        print_json(_row(pushed))
    else:
        _tell(pushed, click.echo)


def _tell(pushed: Pushed, say: Callable[[str], None]) -> None:
    from packager.registry import Outcome

    say(f"{pushed.reference.at(pushed.descriptor.digest)}")
    for outcome in Outcome:
        if blobs := pushed.of(outcome):
            size = sum(blob.size for blob in blobs)
            noun = "blob" if len(blobs) == 1 else "blobs"
            say(f"  {outcome:<8}  {len(blobs):>3} {noun:<5}  {size / 1e6:>9,.1f} MB")


def _row(pushed: Pushed) -> dict[str, Any]:
    return {
        "reference": str(pushed.reference),
        "digest": pushed.descriptor.digest,
        "mediaType": pushed.descriptor.media_type,
        "blobs": [
            {
                "digest": blob.descriptor.digest,
                "mediaType": blob.descriptor.media_type,
                "sizeBytes": blob.descriptor.size,
                "outcome": str(blob.outcome),
            }
            for blob in pushed.blobs
        ],
        "attached": [descriptor.digest for descriptor in pushed.attached],
    }
