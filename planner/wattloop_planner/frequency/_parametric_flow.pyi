import numpy as np
import numpy.typing as npt

class ParametricFlow:
    def __new__(
        cls,
        nodes: int,
        source: int,
        sink: int,
        tails: npt.NDArray[np.int32],
        heads: npt.NDArray[np.int32],
        first_points: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int64],
        capacities: npt.NDArray[np.int64],
    ) -> ParametricFlow: ...
    @property
    def time(self) -> int: ...
    @property
    def previous_time(self) -> int: ...
    @property
    def flow(self) -> int: ...
    @property
    def spread(self) -> float: ...
    @property
    def finished(self) -> bool: ...
    def advance(self, until: float, times: npt.NDArray[np.int64], rises: npt.NDArray[np.float64], /) -> int: ...
    def durations(self, time: int, unit: float, out: npt.NDArray[np.float64], /) -> None: ...
