"""The names that arguments and variables of a training have for the batch size and for the epochs."""

from __future__ import annotations

import re

# Names of arguments and variables, in lower case and with underscores.
GLOBAL_BATCH_SIZE = frozenset(
    {
        "batch",
        "batch_sz",
        "batch_size",
        "batchsize",
        "bs",
        "bsz",
        "data_batch_size",
        "global_batch",
        "global_batch_size",
        "ims_per_batch",
        "mini_batch_size",
        "minibatch_size",
        "total_batch_size",
        "train_batch",
        "train_batch_size",
        "train_batchsize",
        "train_bs",
        "training_batch_size",
    }
)
PER_DEVICE_BATCH_SIZE = frozenset(
    {
        "batch_size_per_device",
        "batch_size_per_gpu",
        "device_batch_size",
        "imgs_per_gpu",
        "local_batch_size",
        "per_device_batch_size",
        "per_device_train_batch_size",
        "per_gpu_batch_size",
        "per_gpu_train_batch_size",
        "samples_per_gpu",
        "train_batch_size_per_gpu",
    }
)
EPOCHS = frozenset(
    {
        "epoch",
        "epoch_num",
        "epochs",
        "epochs_num",
        "max_epoch",
        "max_epochs",
        "max_num_epochs",
        "n_epoch",
        "n_epochs",
        "nb_epoch",
        "nb_epochs",
        "nepochs",
        "num_epoch",
        "num_epochs",
        "num_train_epoch",
        "num_train_epochs",
        "num_training_epochs",
        "number_of_epochs",
        "total_epoch",
        "total_epochs",
        "train_epoch",
        "train_epochs",
        "training_epochs",
    }
)
# Parts of a name that say of what it is not.
NOT_TRAINING = re.compile(r"^(?:val|valid|validation|eval|evaluation|test|predict|inference)(?:_|$)", re.IGNORECASE)
BATCH_SIZE_SETTING, PER_DEVICE_SETTING, EPOCHS_SETTING = "batch_size", "per_device", "epochs"


def _plain(name: str) -> str:
    """A name without what differs between ways to write it: batch_size, batch-size, batchSize."""
    return name.replace("-", "").replace("_", "").lower()


SETTINGS = (
    dict.fromkeys(map(_plain, GLOBAL_BATCH_SIZE), BATCH_SIZE_SETTING)
    | dict.fromkeys(map(_plain, PER_DEVICE_BATCH_SIZE), PER_DEVICE_SETTING)
    | dict.fromkeys(map(_plain, EPOCHS), EPOCHS_SETTING)
)


def setting_of(name: str) -> str | None:
    """The setting that an argument or a variable of this name has, or None.

    Example:
        >>> setting_of("--train-batch-size"), setting_of("trainer.max_epochs"), setting_of("val.batch_size")
        ('batch_size', 'epochs', None)
    """
    *outer, last = re.split(r"[./]", name.lstrip("-+"))
    return None if any(map(NOT_TRAINING.match, outer)) else SETTINGS.get(_plain(last))
