"""The evaluation of measured and emulated pipelines, as the published artifact of Perseus has it."""
