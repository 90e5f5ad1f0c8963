"""The devices and processes that train together."""

import contextlib
import dataclasses
import functools
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from kformer.files.writing import temporary_folder
from kformer.runs.folder import RunFolder
from kformer.training.distributed.broadcast import broadcast_number, pack, receive, send


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """The devices and processes that train together, as one of the processes sees them.

    Attributes:
        rank: The number of this process, from 0 up. Process 0 is the main process.
        world_size: The number of processes.
        replicas: The number of devices in all processes. It divides the number of rows of every batch.
        scope: A context in which model, optimizer and metrics are made, and `fit` is called.
    """

    rank: int
    world_size: int
    replicas: int
    scope: Callable[[], contextlib.AbstractContextManager]

    @property
    def is_main(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def all_reduce_max(self, value: int) -> Callable[[], int]:
        """Starts to compute the maximum of the processes' values; the returned function waits for it.

        Every process must call it at the same place between the same steps of training.
        """
        import jax

        one_a_device, maximum = _maximum()
        values = np.full(jax.local_device_count(), value, "int32")
        found = maximum(jax.make_array_from_process_local_data(one_a_device, values))
        return lambda: int(found)

    def describe(self) -> str:
        """The number of devices and processes, to be put after the name of the backend; "" for a single device."""
        if self.replicas == 1:
            return ""
        devices = f", {self.replicas} devices"
        return devices if self.world_size == 1 else f"{devices} in {self.world_size} processes"

    @contextlib.contextmanager
    def failure_told(self) -> Iterator[None]:
        """A block in which process 0 opens the run that it sends next: if it fails, `received_run` fails, too."""
        try:
            yield
        except BaseException:
            if self.world_size > 1:
                broadcast_number(0)
            raise

    def send_run(self, run: RunFolder) -> None:
        """Sends the files that a resumed run reads. Process 0 calls it while the others enter `received_run`."""
        if self.world_size > 1:
            with temporary_folder() as folder, tempfile.TemporaryFile(dir=folder) as archive:
                pack(run, archive)
                send(archive)

    @contextlib.contextmanager
    def received_run(self) -> Iterator[RunFolder]:
        """A copy of the run that process 0 sends; it is removed when the block ends.

        Raises:
            ConnectionError: Process 0 could not open the run.
        """
        with temporary_folder() as folder, tempfile.TemporaryFile(dir=folder) as archive:
            if not receive(archive):
                raise ConnectionError("Process 0 could not open the run. Its own output says why.")
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folder / "run")
            yield RunFolder(folder / "run")

    def barrier(self) -> None:
        """Waits until all processes are here. JAX reports a process as lost if it ends while process 0 still writes."""
        if self.world_size > 1:
            self.all_reduce_max(0)()


def process_group(devices: int | None = None) -> ProcessGroup:
    """The group of this process: all processes that called `initialize`, and the devices of each.

    Args:
        devices: How many of this machine's devices to use; None: all that Keras lists (the GPUs, if there are any).

    Raises:
        ValueError: There are fewer than `devices` devices; or there are several processes, and `devices` was given or
            their numbers of devices differ.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        if jax.process_count() > 1:
            return _group_of_processes(devices)
    names = keras.distribution.list_devices()
    if devices is not None and not 1 <= devices <= len(names):
        raise ValueError(
            f"devices must be from 1 to {len(names)}, for {', '.join(names)}. Received: devices={devices}."
        )
    names = names[:devices]
    if len(names) == 1 or backend not in ("jax", "tensorflow"):
        return ProcessGroup(0, 1, 1, contextlib.nullcontext)
    if backend == "jax":
        distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
        return ProcessGroup(0, 1, len(names), distribution.scope)
    import tensorflow as tf

    return ProcessGroup(0, 1, len(names), tf.distribute.MirroredStrategy([name.upper() for name in names]).scope)


def _group_of_processes(devices: int | None) -> ProcessGroup:
    import jax

    counts = [len(jax.local_devices(process_index=process)) for process in range(jax.process_count())]
    if devices is not None or len(set(counts)) > 1:
        raise ValueError(
            "Several processes use all of their devices, and need the same number each. "
            f"Received: {counts} devices in processes 0 to {len(counts) - 1}, and devices={devices}. "
            "Leave devices out, and choose the GPUs of a process by CUDA_VISIBLE_DEVICES."
        )
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    return ProcessGroup(jax.process_index(), jax.process_count(), jax.device_count(), distribution.scope)


@functools.cache
def _maximum() -> tuple[Any, Callable]:
    """The sharding of an array with one number per device, and a function that gives all processes its maximum."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.sharding.Mesh(jax.devices(), "devices")
    everywhere = NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec("devices")), jax.jit(jax.numpy.max, out_shardings=everywhere)
