"""A convolution, a matrix product and an LSTM in PyTorch, forward and backward, with fixed seeds.

Run by the Python that holds torch, which need not be the one that holds dpack. Prints for each a digest of its
output and gradients, and its speed, in the form of the examples. What fails is told on stderr; exit 1 then, and 3
where torch sees no GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable

import torch

Tensors = tuple[torch.Tensor, ...]
Step = Callable[[], Tensors]
_BLOCKS = 5


def convolution(device: str, kind: torch.dtype) -> Step:
    """Three convolutions over images of 64 x 64."""
    layers = [torch.nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 32), (32, 64), (64, 64))]
    steps = [each for layer in layers for each in (layer, torch.nn.ReLU())]
    return _step(torch.nn.Sequential(*steps), torch.randn(16, 3, 64, 64), device, kind)


def product(device: str, kind: torch.dtype) -> Step:
    """A matrix product with a bias: 512 x 1024 by 1024 x 768."""
    return _step(torch.nn.Linear(1024, 768), torch.randn(512, 1024), device, kind)


def lstm(device: str, kind: torch.dtype) -> Step:
    """Two layers of 128 units over 32 time steps."""
    network = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True)
    return _step(network, torch.randn(16, 32, 64), device, kind)


def _step(network: torch.nn.Module, values: torch.Tensor, device: str, kind: torch.dtype) -> Step:
    # Made on the CPU and copied, so that the first kernel is one of the library that is looked at.
    network, values = network.to(kind).to(device), values.to(kind).to(device)

    def once() -> Tensors:
        network.zero_grad()
        out = network(values)
        out = out[0] if isinstance(out, tuple) else out
        out.float().square().mean().backward()
        return (out.detach(), *(each.grad for each in network.parameters() if each.grad is not None))

    return once


WORK = {"convolution": convolution, "product": product, "lstm": lstm}


def digest(tensors: Tensors) -> str:
    """sha256 of all bits of the tensors."""
    told = hashlib.sha256()
    for each in tensors:
        told.update(each.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()


def speed(step: Step, device: str, steps: int) -> float:
    """Steps per second, the median of five blocks of ``steps``."""
    rates = []
    for _ in range(_BLOCKS):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        if device != "cpu":
            torch.cuda.synchronize()
        rates.append(steps / (time.perf_counter() - start))
    return statistics.median(rates)


def perform(name: str, device: str, kind: torch.dtype, steps: int) -> bool:
    """One piece of work, told; False where it failed."""
    label = f"{name}-{str(kind).removeprefix('torch.')}"
    torch.manual_seed(7)
    try:
        step = WORK[name](device, kind)
        seen = digest(step())
        rate = speed(step, device, steps)
    except RuntimeError as error:
        sys.stderr.write(f"{label}: {str(error).splitlines()[0]}\n")
        return False
    sys.stdout.write(f"{label:<24} sha256 {seen}\n{label:<24} {rate:.0f} samples/s\n")
    sys.stdout.flush()
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="cpu is for trying the script")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="in each of five timed blocks")
    parser.add_argument("--kinds", nargs="+", default=["float32", "bfloat16"], metavar="DTYPE")
    options = parser.parse_args()
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("torch sees no GPU\n")
        return 3
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    sys.stdout.write(f"torch          {torch.__version__}\ncuDNN          {torch.backends.cudnn.version()}\n")
    kinds = [getattr(torch, name) for name in options.kinds]
    ended = [perform(name, device, kind, options.steps) for name in WORK for kind in kinds]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
