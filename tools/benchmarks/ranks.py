"""Processes with a workbench group (the default one) and a Gloo group beside it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

DEADLINE = 300.0  # seconds for one measurement


def on_ranks(n: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run ``function(rank, n, gloo_group, *arguments)`` on n processes that record; rank 0's
    result.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed"])
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as trace:
        processes = [
            context.Process(
                target=_work, args=(rank, n, store.port, trace, sender, function, arguments)
            )
            for rank in range(n)
        ]
        for process in processes:
            process.start()
        sender.close()
        try:
            if not receiver.poll(DEADLINE):
                raise TimeoutError(f"{function.__name__} on {n} ranks took over {DEADLINE:.0f} s")
            return receiver.recv()
        finally:
            for process in processes:
                process.join(10)
                process.kill()


def _work(
    rank: int, n: int, port: int, trace: str, sender: Any, function: Any, arguments: Any
) -> None:
    os.environ["WORKBENCH_TRACE"] = trace  # recording is on: that is what is measured
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    import workbench  # noqa: F401

    store = dist.TCPStore("127.0.0.1", port, n, is_master=False)
    dist.init_process_group("workbench", store=store, rank=rank, world_size=n)
    gloo = dist.new_group(backend="gloo")
    result = function(rank, n, gloo, *arguments)
    if rank == 0:
        sender.send(result)
    dist.destroy_process_group()
