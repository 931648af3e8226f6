from collections.abc import Buffer

class ParametricFlow:
    def __new__(
        cls,
        nodes: int,
        source: int,
        sink: int,
        tails: Buffer,
        heads: Buffer,
        first_points: Buffer,
        lengths: Buffer,
        capacities: Buffer,
    ) -> ParametricFlow: ...
    @property
    def time(self) -> int: ...
    @property
    def previous_time(self) -> int: ...
    @property
    def flow(self) -> int: ...
    def advance(self) -> bool: ...
    def durations(self, time: int, unit: float, out: Buffer, /) -> None: ...
