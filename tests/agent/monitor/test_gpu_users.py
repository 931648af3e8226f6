"""Others on the GPUs of a caller: seen once a second, and remembered."""

from collections.abc import Sequence

from wattloop.energy.gpu_reading import OtherUse
from wattloop_agent.monitor.gpu_users import MAX_CALLERS, GpuProcessList, GpuUsers


class Owners:
    """Each process is its own owner."""

    def others(self, owner: str, pids: Sequence[int], *, is_complete: bool) -> tuple[tuple[str, ...], str]:
        return tuple(str(pid) for pid in pids if str(pid) != owner), "" if is_complete else "a part"


class Driver:
    """One GPU whose processes the test sets, at a time that it sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.list = GpuProcessList(is_complete=True)
        self.reads = 0
        self.users = GpuUsers(self.read, Owners(), lambda: self.seconds)

    def read(self) -> dict[str, GpuProcessList]:
        self.reads += 1
        return {"GPU-1": self.list}

    def at(self, seconds: float, *pids: int) -> None:
        self.seconds, self.list = seconds, GpuProcessList(pids, is_complete=True)
        self.users.check()


def test_others_that_came_and_went_between_two_requests_of_a_caller_are_remembered() -> None:
    driver = Driver()
    driver.users.begin("1")
    driver.at(10.0, 1)
    assert driver.users.others("1", "GPU-1").since(0.0) is False
    driver.at(11.0, 1, 2)
    driver.at(12.0, 1)
    assert driver.users.others("1", "GPU-1") == OtherUse(11.0, "2")
    assert [driver.users.others("1", "GPU-1").since(seconds) for seconds in (5.0, 11.0, 11.5)] == [True, True, False]
    # One that began later shares its GPU with no one.
    driver.users.begin("3")
    driver.at(13.0, 3)
    assert driver.users.others("3", "GPU-1").since(12.0) is True, "the list of its begin had the process 1"
    assert driver.users.others("3", "GPU-1").since(12.5) is False


def test_the_driver_is_asked_once_a_second_and_at_a_begin() -> None:
    driver = Driver()
    driver.users.begin("1")
    for tenth in range(40):
        driver.seconds = tenth / 10
        driver.users.check()
        driver.users.begin(f"{tenth % 3}")
    # A timer may be early by a fifth.
    assert driver.reads == 5


def test_what_the_driver_does_not_tell_is_not_known() -> None:
    driver = Driver()
    assert driver.users.others("1", "GPU-1").since(0.0) is None, "it has not begun"
    driver.list = GpuProcessList(problem="MIG: no permission")
    driver.users.begin("1")
    assert driver.users.others("1", "GPU-1") == OtherUse(unknown="MIG: no permission")
    driver.seconds, driver.list = 5.0, GpuProcessList((1, 2))
    driver.users.check()
    assert driver.users.others("1", "GPU-1") == OtherUse(5.0, "2", "a part")


def test_the_callers_that_asked_last_are_kept() -> None:
    driver = Driver()
    driver.at(1.0, 1, 2)
    for number in range(MAX_CALLERS + 1):
        driver.users.begin(str(number))
    assert driver.users.others("0", "GPU-1").since(0.0) is None
    assert driver.users.others("1", "GPU-1").since(0.0) is True
