"""Where attempts write their models, and which model is current."""

from pydantic import Field

from wattloop_operator.api.field_types import Time
from wattloop_operator.api.model import ApiModel

# An absolute path without empty, `.` and `..` parts, or a URL; printable ASCII without spaces and quotes.
_PART = "[A-Za-z0-9_+=@%,-][A-Za-z0-9_+=@%,.-]*"
OUTPUT_DIRECTORY_PATTERN = f"^(/|[a-z][a-z0-9+.-]{{0,31}}://){_PART}(/{_PART})*$"
MAX_OUTPUT_DIRECTORY_CHARACTERS = 512
MODEL_DIGEST_PATTERN = r"^[0-9a-f]{32}$"


class Output(ApiModel):
    """Where attempts write their models."""

    directory: str = Field(
        description="Folder of the job's models: an absolute path on a volume that the training containers mount, or "
        "the URL of a prefix in an object store. Each attempt writes to attempts/<name> in it (run.output_dir, "
        "WATTLOOP_OUTPUT_DIR). When the training of an attempt that reached the target ends, the client makes the "
        "symbolic link 'current' point to it by one rename; for a URL it writes the marker object current.json. In "
        "local mode it is the folder 'models' of the output folder.",
        min_length=2,
        max_length=MAX_OUTPUT_DIRECTORY_CHARACTERS,
        pattern=OUTPUT_DIRECTORY_PATTERN,
    )
    warm_start: bool = Field(
        default=False,
        description="Whether attempts start from the current model (run.warm_start_dir, WATTLOOP_WARM_START_DIR) once "
        "one is published. A warm start needs fewer epochs, so the policy treats it as another training: what it "
        "learned from cold starts counts until warm ones differ, and crashes of one do not count for the other.",
    )


class AttemptModel(ApiModel):
    """The model that an attempt has published."""

    path: str = Field(
        description="Folder of its files, relative to spec.output.directory.", min_length=1, max_length=160
    )
    digest: str = Field(
        description="Digest of its files as in wattloop-model.json; for a URL, of the marker object.",
        min_length=32,
        max_length=32,
        pattern=MODEL_DIGEST_PATTERN,
    )


class CurrentModel(ApiModel):
    """The model that was published last."""

    path: str = Field(
        description="Folder of its files, relative to spec.output.directory.", min_length=1, max_length=160
    )
    recurrence: str = Field(
        description="Name of the TrainingRecurrence that published it.", min_length=1, max_length=253
    )
    time: Time = Field(description="Time at which its attempt ended.")
