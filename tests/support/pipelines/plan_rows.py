"""Plans as plain clocks."""

from wattloop_planner.frequency.pipeline.instruction_profiles import Rows, setting_of


def clocks(rows: Rows) -> list[list[int]]:
    """The clocks in MHz of a plan without knobs."""
    settings = [[setting_of(entry) for entry in row] for row in rows]
    assert not any(setting.knobs for row in settings for setting in row)
    return [[setting.frequency_megahertz for setting in row] for row in settings]
