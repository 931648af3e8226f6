"""Digests of what the product computes, so that a renaming can be shown to change no result.

    python tools/same_results.py > before.txt        # on the commit before
    python tools/same_results.py > after.txt         # on the commit after
    diff before.txt after.txt

One line a result: its digest and its name. It runs every policy on the reference traces, plans the reference
pipelines, and runs the demo; it takes about five minutes. It is deleted when the renaming is done.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
WATTLOOP = Path(sys.executable).with_name("wattloop")
JOBS = """job,gpu,power,dataset,network,optimizer,target_metric,max_epochs,default_batch_size
cifar-a40,a40,{data}/zeus-traces/summary_power_a40.csv,cifar100,shufflenetv2,adadelta,0.6,100,1024
imagenet-v100,v100,{data}/zeus-traces/summary_power_v100.csv,imagenet,resnet50,adadelta,0.65,100,256
movielens-a40,a40,{data}/zeus-traces/summary_power_a40.csv,movielens-1m,ncf,adam,0.41,100,1024
sentiment-v100,v100,{data}/zeus-traces/summary_power_v100.csv,sentiment140,bert_base_uncased,adamw,0.84,10,128
"""
PIPELINES = (
    ("gpt3", "stage_profile/gpt3-175b+a100_sxm_bf16.csv", 8, 12, 83.64),
    ("bloom", "stage_profile/bloom+a40_bf16.csv", 8, 12, 70.38),
    ("bert", "reconstructed/A100_bert-huge-uncased_pp4_nmb32.csv", 4, 32, 83.64),
    ("wide-resnet", "reconstructed/A100_wide-resnet101_8_pp4_nmb24.csv", 4, 24, 83.64),
)


def wattloop(*arguments: object) -> None:
    """Run the command; its output is not of interest."""
    subprocess.run([str(WATTLOOP), *map(str, arguments)], check=True, cwd=ROOT, capture_output=True)  # noqa: S603


def show(name: str, path: Path) -> None:
    """Print the digest of a file."""
    sys.stdout.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
    sys.stdout.flush()


def main() -> int:
    """Compute everything; returns the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "jobs.csv").write_text(JOBS.format(data=DATA))
        for policy in ("thompsonSampling", "zeus", "grid", "default"):
            for stop in ("inside", "epoch-end"):
                output = folder / f"{policy}-{stop}.csv"
                options = ("--policy", policy, "--stop", stop, "--seeds", "1-3", "--recurrences", 60, "--eta", 0.5)
                train = DATA / "zeus-traces" / "summary_train.csv"
                wattloop("simulate", "--jobs", folder / "jobs.csv", "--train", train, *options, "--output", output)
                show(f"decisions of {policy}, stopped {stop}", output)
        for label, profile, stages, microbatches, power in PIPELINES:
            plans = folder / label
            size = ("--stages", stages, "--microbatches", microbatches, "--blocking-power", power)
            wattloop("plan", "--profile", DATA / "perseus" / profile, *size, "--schedule", "1f1b", "--output", plans)
            for file in ("frontier.csv", "iteration_time_energy.csv", "stragglers.csv"):
                show(f"{file} of {label}", plans / file)
        demo = folder / "demo"
        wattloop("run", "examples/digits/job.yaml", "--recurrences", 32, "--simulated-gpus", 1, "--output", demo)
        show("recurrences.csv of the demo", demo / "recurrences.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
