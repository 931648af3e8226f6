"""The power limits at which GPUs work, observed while something runs."""

from collections import defaultdict

from nvml_simulator import Machine
from support.node.polling import Poller


class LimitObserver(Poller):
    """A context that looks at the GPUs again and again.

    If two looks one after the other see the same limit and more time with work, it worked at that limit; what happened
    between two looks of different limits is not known, and not told.

    Attributes:
        worked_at: By uuid, the limits at which it was seen to work, in watts, and for how many of its seconds.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(every_seconds=0.005)
        self.worked_at: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        self._machine = machine
        self._before = {gpu.uuid: gpu for gpu in machine.describe().gpus}

    def poll(self) -> None:
        """Compares each GPU with the look before."""
        now = {gpu.uuid: gpu for gpu in self._machine.describe().gpus}
        for uuid, gpu in now.items():
            seconds = gpu.busy_seconds - self._before[uuid].busy_seconds
            if seconds > 0 and gpu.power_limit_watts == self._before[uuid].power_limit_watts:
                self.worked_at[uuid][gpu.power_limit_watts] += seconds
        self._before = now
