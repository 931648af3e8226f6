"""The types of the fixtures of `tests/cluster` that return functions."""

from collections.abc import Callable

from support.control_plane.operator_process import OperatorProcess
from support.control_plane.training import Training
from support.control_plane.waiting import Object
from wattloop_operator.domain.names import JobKey

MakeJob = Callable[..., JobKey]
Train = Callable[[JobKey, str], Training]
Ended = Callable[[JobKey, str], None]
JobOf = Callable[[JobKey], Object]
RecurrencesOf = Callable[[JobKey], list[Object]]
# Sends a text that no client parses: method, path, content type and body; returns the answer.
Send = Callable[[str, str, str, bytes], bytes]
StartControllers = Callable[[str], None]
Operators = Callable[..., Callable[[], OperatorProcess]]
# Exit code, standard output and standard error of `wattloop` with these words.
Wattloop = Callable[..., tuple[int, str, str]]
