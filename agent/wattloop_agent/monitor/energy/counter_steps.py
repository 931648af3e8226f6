"""How long a GPU's energy counter stands between two of its steps, and when the step can have been that is seen."""

from __future__ import annotations

from wattloop_agent.monitor.energy.gpu_sample import GpuSample

# The longest that a counter of a GPU at work stands (an H200's 100 ms); one seen to stand longer is believed.
MAX_STEP_SECONDS = 0.1


class CounterSteps:
    """What is known of a counter's steps.

    Attributes:
        longest_seconds: The longest that it was seen to stand.
    """

    def __init__(self) -> None:
        self.longest_seconds = MAX_STEP_SECONDS
        self._stepped_clock_seconds = 0.0

    def stepped(self, sample: GpuSample) -> None:
        """Take note of a sample whose counter is another than the one before."""
        self._stepped_clock_seconds = sample.clock_seconds

    def stood(self, sample: GpuSample) -> None:
        """Take note of a sample whose counter is that of the one before."""
        self.longest_seconds = max(self.longest_seconds, sample.clock_seconds - self._stepped_clock_seconds)

    def earliest(self, last: GpuSample, sample: GpuSample) -> float:
        """When the last step can have been that this sample shows: not longer ago than a counter stands."""
        drift = (sample.clock_seconds - sample.begin_seconds) - (last.clock_seconds - last.begin_seconds)
        if abs(drift) > self.longest_seconds / 10:
            # Simulated time of another pace says nothing of ours.
            return last.begin_seconds
        return max(last.begin_seconds, sample.begin_seconds - self.longest_seconds)
