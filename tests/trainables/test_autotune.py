"""The kernel of each convolution: the one asked for, or the faster one, measured once."""

import json
from pathlib import Path

import pytest
import torch

from trainables.machine.array_cache import default_folder
from trainables.network import autotune
from trainables.network.autotune import choose_kernels
from trainables.network.convolution import TILINGS, Convolution
from trainables.network.vgg import vgg

LIBRARY = {size: {"library"} for size in (32, 16, 8, 4, 2)}


def kernels(choice: str, device: str = "cpu") -> dict[int, set[str]]:
    """By the size of the maps."""
    network = vgg(width=0.05).to(device)
    choose_kernels(
        network,
        choice,  # type: ignore[arg-type]
        batch_size=4,
        dtype=torch.bfloat16,
        memory_format=torch.channels_last,
    )
    found: dict[int, set[str]] = {}
    for layer in network.modules():
        if isinstance(layer, Convolution):
            found.setdefault(layer.size, set()).add(layer.kernel)
    return found


def test_a_kernel_that_is_asked_for_is_taken_where_it_can_pay() -> None:
    assert kernels("library") == LIBRARY
    assert kernels("gemm", "meta") == {**LIBRARY, **{size: {"gemm_4x2"} for size in (8, 4, 2)}}
    assert all(kinds <= set(TILINGS) for size, kinds in kernels("gemm").items() if size <= 8)


def test_auto_takes_the_faster_one_by_a_measurement_that_is_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAINING_SEARCH_CACHE", str(tmp_path))
    kernels("auto")
    files = list(default_folder().glob("convolution-*.json"))
    assert len(files) == 5  # 8x8 and 4x4 maps with half and with all of their channels, and 2x2 maps
    for file in files:
        content = json.loads(file.read_text())
        assert set(content["figures"]) == {"library", "gemm_4x2", "gemm_4x4"}
        content["figures"] = {"library": 3.0, "gemm_4x2": 2.0, "gemm_4x4": 1.0}
        file.write_text(json.dumps(content))
    monkeypatch.delattr(autotune, "_timed")
    assert kernels("auto")[4] == {"gemm_4x4"}
    for file in files:
        file.write_text(file.read_text().replace("3.0", "0.5"))
    assert kernels("auto")[4] == {"library"}
    assert kernels("gemm")[4] == {"gemm_4x4"}


def test_one_contended_repetition_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's first one took ten times as long as it does."""
    taken = {"library": iter([0.01, 0.1, *[0.01] * 9]), **{k: iter([0.015] * 9) for k in TILINGS}}
    monkeypatch.setattr(autotune, "_seconds", lambda layer, kernel, images: next(taken[kernel]))
    layer = Convolution(4, 4, size=4, bias=False)
    assert autotune._timed(layer, torch.zeros(1))["library"] == 0.01


def test_measuring_leaves_weights_and_random_numbers_alone() -> None:
    network = vgg(width=0.05)
    before = [p.clone() for p in network.parameters()]
    state = torch.get_rng_state()
    choose_kernels(network, "auto", batch_size=2, dtype=torch.float32, memory_format=torch.contiguous_format)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in network.parameters())
    assert all(map(torch.equal, network.parameters(), before))


def test_away_from_the_cpu_auto_is_the_library_s() -> None:
    assert kernels("auto", "meta") == LIBRARY
