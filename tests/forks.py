"""Processes that start in milliseconds: forked from one, for all tests, that has imported what takes long."""

import multiprocessing

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.trainables.ranked", "torch", "trainables.loop", "tests.faults.simulation", "pynvml"]
)
