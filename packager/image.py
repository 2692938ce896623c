"""From a plan to an OCI image, or to one layer of one: layers that age apart, and what the image says of itself.

The program stands in /app of every image, so that two programs that need the same libraries have the same layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager import __version__
from packager.account.manifest import FILE_NAME, Contents, manifest, to_json, with_archive, with_image
from packager.account.requirements import DRIVER_GROUP
from packager.analysis import Analysis
from packager.contents import check_inputs, contents_of, items_of
from packager.emit import Entry, Item
from packager.emit.item import directories
from packager.errors import DpackError, usage
from packager.oci.base import Base
from packager.oci.descriptor import Platform
from packager.oci.documents import ImageOptions, name_of
from packager.oci.layer import Compression, LayerForm, LayerSpec
from packager.oci.write import ImageForm, WrittenImage, WrittenLayer, write_layer_file, write_oci
from packager.plan import EXECUTABLE, Plan
from packager.worker import Worker

TOP = "app/"
"""The directory of the bundle in an image."""

VENDOR, OTHERS, PROGRAM = "vendor libraries", "other libraries", "the program"
"""The layers, the one that changes least first."""

WHOLE = "the program and its libraries"
"""The layer where there is only one."""

_PATH = "/app/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DRIVER = (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
"""What makes NVIDIA's container toolkit bring the driver in: CUDA and NVML, no graphics (its documentation,
"Specialized Configurations with Docker")."""


@dataclass(frozen=True, slots=True)
class ImageOutput:
    """Where an image goes and how.

    ``form``   "oci", "oci-archive", or "layer" for one layer without an image around it.
    ``name``   the image's, with a tag or not.
    ``split``  three layers instead of one.
    """

    path: Path
    form: str
    compression: Compression
    name: str = ""
    split: bool = True
    force: bool = False
    epoch: int = 0
    level: int | None = None

    @property
    def layer_form(self) -> LayerForm:
        """How its layers are written."""
        return LayerForm(self.compression, self.epoch, self.level)


@dataclass(frozen=True, slots=True)
class Image:
    """A written image or layer, and the manifest with its digests."""

    written: WrittenImage | WrittenLayer
    manifest: dict[str, Any]


def image(
    analysis: Analysis,
    output: ImageOutput,
    progress: Callable[[int], None] | None = None,
    worker: Worker | None = None,
) -> Image:
    """Write the image, or the layer, of a complete plan; ``worker`` as for a bundle.

    Raises DpackError where a file cannot be read, changed or written; nothing is left behind then.
    """
    check_inputs(analysis, output.path)
    contents = contents_of(analysis, TOP)

    def last(entries: tuple[Entry, ...]) -> Item:
        return Item(f"{TOP}{FILE_NAME}", 0o644, to_json(manifest(analysis.plan, entries, contents)))

    with items_of(contents, worker) as items:
        _check_base(analysis, [*(item.path for item in items), f"{TOP}{FILE_NAME}"])
        written = _write(analysis, output, contents, items, last, progress)
    whole = manifest(analysis.plan, _entries(written)[:-1], contents)
    return Image(written, _told(whole, written))


def _write(  # noqa: PLR0913, PLR0917 - what both kinds of output take
    analysis: Analysis,
    output: ImageOutput,
    contents: Contents,
    items: Sequence[Item],
    last: Callable[[tuple[Entry, ...]], Item],
    progress: Callable[[int], None] | None,
) -> WrittenImage | WrittenLayer:
    if output.form == "layer":
        return write_layer_file(
            output.path,
            items,
            last,
            layer_form=output.layer_form,
            name=WHOLE,
            force=output.force,
            progress=progress,
        )
    base = analysis.ground.base
    layers = _split(items, contents) if output.split else [LayerSpec(WHOLE, tuple(items))]
    return write_oci(
        output.path,
        layers,
        last,
        _options(analysis, output),
        form=ImageForm(output.form),
        layer_form=output.layer_form,
        base=base.image if base else None,
        force=output.force,
        progress=progress,
    )


def _check_base(analysis: Analysis, paths: Sequence[str]) -> None:
    """Refuse a base that has a link where a directory of ours goes, or a directory where a file goes: our entry
    would replace it, and hide what stands behind it.
    """
    base = analysis.ground.base
    if base is None or base.root is None:
        return
    there = base.sysroot()
    for path in directories(paths):
        real = there.real(f"/{path}")
        if real not in {None, f"/{path}"}:
            raise _no_room(base, f"its /{path} is a link to {real}")
    for path in paths:
        if there.is_directory(f"/{path}"):
            raise _no_room(base, f"its /{path} is a directory, and the bundle has a file of that name")


def _no_room(base: Base, why: str) -> DpackError:
    return usage(f"cannot build on {base.reference}", why, next="choose another base")


def _split(items: Iterable[Item], contents: Contents) -> list[LayerSpec]:
    """What a vendor releases, what else is not the program, and the program."""
    vendor = {one.path for one in contents.placed if one.decision.family and one.decision.family.packages}
    origins = {
        str(contents.origins[one.decision.object.host])
        for one in contents.placed
        if one.path in vendor and one.decision.object
    }
    vendor |= {text.path for text in contents.texts if str(text.origin) in origins}
    program = {one.path for one in contents.placed if one.decision.group == EXECUTABLE}
    layers: dict[str, list[Item]] = {VENDOR: [], OTHERS: [], PROGRAM: []}
    for item in items:
        beside = f"{item.path.rpartition('/')[0]}/{item.link}" if item.link else item.path
        name = PROGRAM if item.path in program else VENDOR if beside in vendor else OTHERS
        layers[name].append(item)
    return [LayerSpec(name, tuple(members)) for name, members in layers.items()]


def _options(analysis: Analysis, output: ImageOutput) -> ImageOptions:
    plan, destination = analysis.plan, analysis.ground.destination
    name = output.name or name_of(plan.program.name)
    ours = {
        "version": __version__,
        "models": " ".join(model.name for model in plan.choice.models),
        "target": analysis.request.aim.target,
        "gpus": " ".join(map(str, destination.gpus)),
    }
    told = (("org.opencontainers.image.title", plan.program.name), *_own(ours))
    base = analysis.ground.base
    path = (("PATH", _PATH),)
    return ImageOptions(
        platform=Platform.parse(destination.platform),
        entrypoint=(f"/{TOP}bin/{Path(plan.program.path).name}",),
        environment=(*path, *(_DRIVER if _uses_gpu(plan) else ())),
        working_directory=f"/{TOP}".rstrip("/"),
        labels=told,
        annotations=told,
        name=name,
        base_name=base.reference if base and base.from_registry else "",
        created_by=f"dpack {__version__}",
    )


def _own(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"io.dpack.{key}", value) for key, value in sorted(values.items()) if value)


def _uses_gpu(plan: Plan) -> bool:
    return any(d.group == DRIVER_GROUP for d in plan.decisions)


def _entries(written: WrittenImage | WrittenLayer) -> tuple[Entry, ...]:
    return written.entries if isinstance(written, WrittenImage) else written.layer.entries


def _told(whole: dict[str, Any], written: WrittenImage | WrittenLayer) -> dict[str, Any]:
    if isinstance(written, WrittenLayer):
        blob = written.layer.descriptor
        told = with_archive(whole, "layer", blob.size, blob.digest.partition(":")[2])
        return with_image(told, layers=[(written.layer.name, blob, written.layer.diff_id)])
    told = with_archive(whole, written.form.value, written.size, None)
    return with_image(
        told,
        digest=written.manifest.digest,
        config=written.config.digest,
        account=written.account.digest,
        layers=[(layer.name, layer.descriptor, layer.diff_id) for layer in written.layers],
        base=[layer.digest for layer in written.base],
    )
