"""Tensors side by side in one vector."""

import torch

from trainables.parallel.ranks import flattened


def test_what_is_written_in_a_place_is_in_the_vector_and_nowhere_else() -> None:
    tensors = [torch.full((2, 3), 1.0), torch.full((4,), 2.0), torch.full((), 3.0)]
    vector, places = flattened(tensors)
    assert vector.tolist() == [0.0] * 11
    for place, tensor in zip(places, tensors, strict=True):
        place.copy_(tensor)
    assert vector.tolist() == [1.0] * 6 + [2.0] * 4 + [3.0]


def test_places_are_laid_out_as_the_tensors_are() -> None:
    """Updates of weights by gradients in another memory format would be slow."""
    weight = torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last)
    _, (_, place) = flattened([torch.zeros(5), weight])
    assert place.stride() == weight.stride()
    assert place.copy_(weight).equal(weight)
