"""How the processes of a training share a global batch, in parts that fit into a GPU's memory."""

from dataclasses import dataclass

from wattloop.arguments import whole_number


@dataclass(frozen=True)
class MicroBatches:
    """The parts of one optimizer step.

    Attributes:
        batch_size: Number of samples that a device computes at once.
        accumulation: Number of such parts whose gradients are added up before the optimizer steps.
        devices: Number of devices that share the batch.
    """

    batch_size: int
    accumulation: int
    devices: int

    @property
    def global_batch_size(self) -> int:
        """Number of samples of an optimizer step: at most what was asked for."""
        return self.batch_size * self.accumulation * self.devices


def micro_batches(global_batch_size: int, devices: int = 1, max_per_device: int | None = None) -> MicroBatches:
    """Share a global batch among devices.

    With as few parts as `max_per_device` allows, the most samples that fit into a device's memory. A batch that does
    not divide is rounded down to one that does, and to one sample for each device at least.

    Raises:
        UsageError: A number is not a positive whole number.

    Example:
        >>> micro_batches(512, devices=4)
        MicroBatches(batch_size=128, accumulation=1, devices=4)
        >>> micro_batches(512, devices=4, max_per_device=48)
        MicroBatches(batch_size=42, accumulation=3, devices=4)
    """
    global_batch_size = whole_number(global_batch_size, "the global batch size")
    devices = whole_number(devices, "the number of devices")
    if max_per_device is not None:
        max_per_device = whole_number(max_per_device, "the maximum of a device")
    share = max(global_batch_size // devices, 1)
    accumulation = 1 if max_per_device is None else -(-share // max_per_device)
    return MicroBatches(share // accumulation, accumulation, devices)
