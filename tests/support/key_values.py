"""A store of a process group within one process, for ranks that are threads or objects of a test."""

from dataclasses import dataclass, field


@dataclass
class KeyValues:
    """A store with the methods of `torch.distributed.Store` that are used; `lost` once its process has ended."""

    values: dict[str, bytes] = field(default_factory=dict)
    lost: bool = False

    def set(self, name: str, text: str) -> None:
        self._check()
        self.values[name] = text.encode()

    def get(self, name: str) -> bytes:
        self._check()
        return self.values[name]

    def check(self, names: list[str]) -> bool:
        self._check()
        return all(name in self.values for name in names)

    def add(self, name: str, number: int) -> int:
        self._check()
        total = int(self.values.get(name, b"0")) + number
        self.values[name] = str(total).encode()
        return total

    def _check(self) -> None:
        if self.lost:
            raise RuntimeError("connection was closed")
