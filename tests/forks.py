"""Processes that start in milliseconds, forked from one server that has imported the slow modules."""

import multiprocessing

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.trainables.ranked", "torch", "trainables.loop", "tests.faults.simulation", "pynvml"]
)
