"""The knobs of a plan's instructions: choices beside the clock, which the training process applies.

A message has each combination of values once, and an index into them for each instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar

from wattloop.pipeline.instruction import MAX_INSTRUCTIONS
from wattloop.wire.message_fields import Integer, MessageError, String
from wattloop.wire.wire_form import MaxItems, WireForm, check_unique

MAX_KNOBS = 16
MAX_KNOB_CHARACTERS = 64
# The combinations of values that the instructions of a plan have.
MAX_KNOB_SETTINGS = 256

Knobs = Mapping[str, str]
NO_KNOBS: Knobs = MappingProxyType({})
KnobText = Annotated[str, String(MAX_KNOB_CHARACTERS)]


@dataclass(frozen=True)
class KnobChoices(WireForm):
    """The knobs of the instructions of a rank.

    Example:
        >>> choices = KnobChoices(("sm",), (("16",), ("20",)), (0, 0, 1))
        >>> [knobs["sm"] for knobs in choices.by_instruction()]
        ['16', '16', '20']
    """

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    names: Annotated[tuple[KnobText, ...], MaxItems(MAX_KNOBS), "Names of the knobs."]
    settings: Annotated[
        tuple[Annotated[tuple[KnobText, ...], MaxItems(MAX_KNOBS)], ...],
        MaxItems(MAX_KNOB_SETTINGS),
        "The combinations of values that occur, each with a value for every knob.",
    ]
    choices: Annotated[
        tuple[Annotated[int, Integer(MAX_KNOB_SETTINGS - 1)], ...],
        MaxItems(MAX_INSTRUCTIONS),
        "Index of the values of each instruction, in execution order.",
    ]

    @classmethod
    def of(cls, rows: Sequence[Knobs]) -> KnobChoices | None:
        """The choices of instructions that all have the same knobs; None if they have none.

        Args:
            rows: The knobs of each instruction, in execution order.

        Raises:
            MessageError: They have different knobs, or more of them than a message holds.

        Example:
            >>> KnobChoices.of([{"sm": "16"}, {"sm": "20"}, {"sm": "16"}])
            KnobChoices(names=('sm',), settings=(('16',), ('20',)), choices=(0, 1, 0))
        """
        names = tuple(rows[0]) if rows else ()
        for place, row in enumerate(rows):
            if row.keys() != set(names):
                raise MessageError(
                    f"instruction {place}: found {_listed(row)}, expected the knobs of the first one: {_listed(names)}"
                )
        if not names:
            return None
        settings: dict[tuple[str, ...], int] = {}
        choices = [settings.setdefault(tuple(row[name] for name in names), len(settings)) for row in rows]
        return cls.from_json({"names": names, "settings": list(settings), "choices": choices}, "knobs")

    def check(self, place: str) -> None:
        """See `WireForm`: each knob has a name, and each instruction a value of every knob."""
        check_unique(f"{place}names", "knob", self.names)
        if not self.names:
            raise MessageError(f"{place}names: found none, expected at least one")
        for index, values in enumerate(self.settings):
            if len(values) != len(self.names):
                raise MessageError(
                    f"{place}settings[{index}]: found {len(values)} values, expected one of each of "
                    f"{len(self.names)} knobs"
                )
        if max(self.choices, default=-1) >= len(self.settings):
            raise MessageError(f"{place}choices: found {max(self.choices)}, expected less than {len(self.settings)}")

    def by_instruction(self) -> tuple[Knobs, ...]:
        """The knobs of each instruction, in execution order; equal ones are one object."""
        named = [MappingProxyType(dict(zip(self.names, values, strict=True))) for values in self.settings]
        return tuple(named[choice] for choice in self.choices)


def _listed(names: Sequence[str] | Knobs) -> str:
    return ", ".join(names) or "none"
