"""The things that are measured: plain PyTorch, without Ray, without search."""
