"""Run a function on several ranks, which gloo connects, in processes that are forked from one with all imports."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PRELOAD = [
    "torch._dynamo",
    "torch.distributed.fsdp",
    "penstock.loading.torch",
    "accelerate",
    "lightning",
    "transformers",
]


def on_ranks(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function(*args)` on every rank, and return what each returned. An error of a rank is raised here."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(world)]
        processes = [
            context.Process(
                target=_rank,
                args=(rank, world, folder, there, function, args),
            )
            for rank, (_, there) in enumerate(pipes)
        ]
        for process, (_, there) in zip(processes, pipes, strict=True):
            process.start()
            there.close()
        try:
            return [_received(here) for here, _ in pipes]
        except BaseException:
            for process in processes:  # the others wait for the one that failed
                process.kill()
            raise
        finally:
            for process in processes:
                process.join()


def trained(module: str, *args: Any, **options: Any) -> tuple[dict[str, Any], list[list[int]]]:
    """Call `train` of a program in `examples/trainers`; return the parameters as arrays, and the samples of batches."""
    model, seen = importlib.import_module(module).train(*args, **options)
    parameters = model if isinstance(model, dict) else model.state_dict()
    return {name: value.detach().numpy().copy() for name, value in parameters.items()}, seen


def on_two_ranks(module: str, *args: Any, **options: Any) -> list[tuple[dict[str, Any], list[list[int]]]]:
    """Call `trained` on two ranks."""
    return on_ranks(2, functools.partial(trained, module, *args, **options))


def _received(here: Connection) -> Any:
    result = here.recv()
    if isinstance(result, BaseException):
        raise result
    return result


def _rank(
    rank: int, world: int, folder: str, there: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import torch

    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # of workers: a program that was not forked has this default
    os.environ.update(
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)},
        NODE_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",  # nobody uses it: the ranks meet in a file
        GLOO_SOCKET_IFNAME="lo",
        ACCELERATE_USE_CPU="true",
    )
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=world)
    try:
        there.send(function(*args))
    except BaseException as error:  # noqa: BLE001  # the caller raises it
        error.add_note(f"on rank {rank} of {world}:\n{traceback.format_exc()}")
        try:
            there.send(error)
        except Exception:  # noqa: BLE001  # not every error pickles
            there.send(RuntimeError(f"rank {rank} of {world}: {type(error).__name__}: {error}"))
        os._exit(1)
    torch.distributed.destroy_process_group()
