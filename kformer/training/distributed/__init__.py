"""Training on several devices and in several processes.

Every batch is divided among all devices, and every process has the same weights after every update. Process 0 is
the main process: it makes the run folder, writes all files and prints. The others receive what they need from it over
the network. So they need the corpus, but no shared disk.

On JAX, Keras's `DataParallel` runs over the devices of one process or of many; on TensorFlow `tf.distribute`'s
`MirroredStrategy` runs over those of one.
"""

from kformer.training.distributed.initialization import initialize, is_main
from kformer.training.distributed.lost_processes import lost_processes_explained
from kformer.training.distributed.process_group import ProcessGroup, process_group

__all__ = ["ProcessGroup", "initialize", "is_main", "lost_processes_explained", "process_group"]
