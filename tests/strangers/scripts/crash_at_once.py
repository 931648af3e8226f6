"""A script that was written for another environment."""

from __future__ import annotations

import polars_of_another_machine as pl  # type: ignore[import-not-found]  # that is what the script is about

print(pl.read_parquet("train.parquet"))
