"""What stays for which GPU. A container is written as its members, a file as its containers in one text."""

import pytest

from packager.arch import Arch, Gpu, Kind, spelling
from packager.cuda.code import Container, GpuCode, Loose, Member
from packager.cuda.select import Policy, keep, registered, runnable
from packager.resolve.machine import machine_of

KINDS = {"sm": Kind.CUBIN, "compute": Kind.PTX, "lto": Kind.LTO, "odd": Kind.OTHER}
CUDNN = "sm_50 sm_61 sm_75 sm_80 sm_86 sm_90a sm_100 sm_120 compute_120"
LINKED = "compute_70 sm_70 compute_80 sm_80 compute_90 sm_90 lto_70 lto_80 lto_90"


def code(*containers, loose="", section=".nv_fatbin", wrapped=True):
    """A file with these containers, each member 64 bytes of header and 1000 of payload, and loose cubins of 500."""
    at, made = 0, []
    for text in containers:
        start = at
        at += 16
        members = []
        for name in text.split():
            prefix, _, arch = name.partition("_")
            kind = KINDS[prefix]
            members.append(Member(kind, Arch.parse(arch), at, 64, 1000, "", 0, 1000, 0x11))
            at += 1064
        made.append(Container(section, start, start, 16, at - start, tuple(members), wrapped))
    pieces = []
    for name in loose.split():
        pieces.append(Loose(".ldata", at, at, 500, Kind.CUBIN, Arch.parse(name), "zstd", 4000))
        at += 500
    return GpuCode("libgpu.so", machine_of(62), at + 900, (), tuple(made), tuple(pieces))


def kept(container, gpus, **policy):
    names = gpus.split()
    selection = keep(code(container), [Gpu.of(name) for name in names], Policy(**policy))
    (one,) = selection.containers
    return " ".join(
        "odd" if each.kind is Kind.OTHER else spelling(each.kind, each.arch) for each in one.members
    )


@pytest.mark.parametrize(
    ("container", "gpus", "stays"),
    [
        # the highest minor that runs, and no other
        (CUDNN, "8.6", "sm_86"),
        (CUDNN, "8.9", "sm_86"),
        (CUDNN, "8.0", "sm_80"),
        (CUDNN, "7.5", "sm_75"),
        (CUDNN, "9.0", "sm_90a"),
        (CUDNN, "10.3", "sm_100"),
        # nothing runs: not on a GPU between the majors, nor on a Jetson
        (CUDNN, "7.0", ""),
        (CUDNN, "8.7", ""),
        ("sm_90a", "8.6", ""),
        # PTX where there is no cubin, and the best of it
        (CUDNN, "13.0", "compute_120"),
        ("sm_75 compute_50 compute_75 compute_90", "8.6", "compute_75"),
        ("sm_75 compute_50 compute_75 compute_90", "7.5", "sm_75"),
        ("compute_50 compute_80", "8.7", "compute_80"),
        ("compute_90a compute_90", "9.0", "compute_90a compute_90"),
        ("compute_90a compute_90", "10.0", "compute_90"),
        # a container with one member of a lower minor keeps it
        ("sm_80", "8.9", "sm_80"),
        # of one SM, plain and with a suffix, both stay, and so do two of a kind
        ("sm_80 sm_90 sm_90a", "9.0", "sm_90 sm_90a"),
        ("sm_100 sm_100f sm_100a", "10.0", "sm_100 sm_100f sm_100a"),
        ("sm_100 sm_100f sm_100a", "10.3", "sm_100 sm_100f"),
        ("sm_80 sm_80 sm_86 sm_86", "8.6", "sm_86 sm_86"),
        # a family
        ("sm_100f sm_103", "10.3", "sm_103"),
        ("sm_120f", "12.1", "sm_120f"),
        # Thor under both its names
        ("sm_101 sm_100", "11.0", "sm_101"),
        ("sm_101 sm_110", "11.0", "sm_101 sm_110"),
        # several GPUs
        (CUDNN, "8.6 9.0", "sm_86 sm_90a"),
        (CUDNN, "7.5 8.0 8.6 13.0", "sm_75 sm_80 sm_86 compute_120"),
        # LTO-IR is linked by nvJitLink: all that runs stays with it
        (LINKED, "8.6", "compute_70 compute_80 sm_80 lto_70 lto_80"),
        # what nobody knows stays
        ("odd_80 sm_80", "9.0", "odd"),
        ("", "8.6", ""),
    ],
)
def test_what_stays_in_a_container(container, gpus, stays):
    assert kept(container, gpus) == stays


@pytest.mark.parametrize(
    ("container", "gpus", "policy", "stays"),
    [
        (CUDNN, "8.6", {"prior_minors": True}, "sm_80 sm_86"),
        (CUDNN, "8.0", {"prior_minors": True}, "sm_80"),
        ("sm_80 sm_86 sm_87 sm_89", "8.9", {"prior_minors": True}, "sm_80 sm_86 sm_89"),
        ("sm_80 sm_86 sm_87", "8.7", {"prior_minors": True}, "sm_87"),
        ("sm_100f sm_103", "10.3", {"prior_minors": True}, "sm_100f sm_103"),
        ("sm_80 compute_50 compute_80", "8.6", {"ptx": "keep"}, "sm_80 compute_50 compute_80"),
        ("sm_80 compute_50 compute_90", "8.6", {"ptx": "keep"}, "sm_80 compute_50"),
        ("sm_75 compute_75", "8.6", {"ptx": "drop"}, ""),
        (LINKED, "8.6", {"ptx": "drop"}, "sm_80 lto_70 lto_80"),
        (LINKED, "8.6", {"lto": False}, "sm_80"),
        ("lto_50", "8.6", {"lto": False}, ""),
    ],
)
def test_policies(container, gpus, policy, stays):
    assert kept(container, gpus, **policy) == stays


def test_loose_cubins_stay_wherever_they_run():
    selection = keep(code(loose="sm_70 sm_80 sm_86 sm_90 sm_100"), [Gpu.of("8.6")])
    assert [str(each.arch) for each in selection.loose] == ["sm_80", "sm_86"]


def test_what_stays_and_what_goes_is_everything():
    whole = code(CUDNN, "sm_90a", "sm_86", loose="sm_86 sm_90")
    selection = keep(whole, [Gpu.of("8.6")])
    assert (selection.kept_size, selection.dropped_size) == (2 * 1064 + 500, 9 * 1064 + 500)


def test_more_gpus_keep_no_less_and_the_choice_for_one_can_be_made_again():
    """keep(A) of keep(A and B) is keep(A), container by container."""
    pair, one = [Gpu.of("8.6"), Gpu.of("9.0")], [Gpu.of("8.6")]
    whole = code(CUDNN, LINKED, "sm_80 sm_90a compute_50", "compute_50 compute_86 sm_90")
    for policy in (Policy(), Policy(prior_minors=True), Policy(ptx="keep")):
        both = keep(whole, pair, policy)
        again = keep(
            GpuCode("", whole.machine, 0, (), tuple(
                Container(k.container.section, k.container.offset, 0, 16, 0, k.members) for k in both.containers
            )),
            one,
            policy,
        )  # fmt: skip
        direct = keep(whole, one, policy)
        assert [k.members for k in again.containers] == [k.members for k in direct.containers]


@pytest.mark.parametrize(
    ("containers", "gpu", "answer"),
    [
        ([CUDNN], "8.6", True),
        ([CUDNN], "7.0", False),
        ([CUDNN], "8.7", False),
        ([CUDNN], "13.0", True),
        ([CUDNN, "sm_90a", "sm_90a"], "8.6", True),
        # PTX of one container in three is no support
        (["sm_75 compute_50", CUDNN, CUDNN], "8.7", False),
        (["sm_75 compute_50", "sm_75 compute_75", CUDNN, "sm_80", "sm_80"], "8.7", True),
        (["lto_50"], "8.7", True),
        ([], "8.7", True),
        ([""], "8.7", True),
    ],
)
def test_a_file_is_runnable_where_its_kernels_reach_the_gpu(containers, gpu, answer):
    assert runnable(code(*containers), Gpu.of(gpu)) is answer


def test_a_loose_cubin_makes_a_file_runnable():
    assert runnable(code(loose="sm_80"), Gpu.of("8.6"))
    assert not runnable(code(loose="sm_80"), Gpu.of("9.0"))


def test_what_the_device_link_leaves_behind_does_not_count():
    left = code("sm_52", wrapped=False)
    assert not registered(left.containers[0])
    assert runnable(left, Gpu.of("8.6"))
    assert not runnable(code("sm_52", section=".ldata", wrapped=False), Gpu.of("8.6"))
