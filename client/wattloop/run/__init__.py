"""A training run: its progress, reports and verdicts, the limit held on its GPUs, and the model it publishes."""
