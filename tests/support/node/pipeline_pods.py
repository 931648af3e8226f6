"""The example of examples/pipeline in pods of the node: its manifest, and PyTorch from this machine."""

import copy
import subprocess
from pathlib import Path

import yaml

from support.control_plane.chart import REPOSITORY
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.installation import namespace as namespace_object
from support.node.digits import container_of, digits_job

EXAMPLE = REPOSITORY / "examples" / "pipeline"
ENOUGH = "trained-enough"
"""A file with this name beside the state of the simulated GPUs ends the trainings."""

# Debian's Python is that of the images; the packages are of the Python that `make` found.
_INTEGRATIONS = REPOSITORY / ".venv-integrations"
PACKAGES = _INTEGRATIONS / "lib" / "python3.11" / "site-packages"
_PACKAGES_IN_POD = "/opt/pytorch"
_SCRIPTS, _SCRIPTS_IN_POD = "pipeline", "/opt/pipeline"
_TRAINING = Path(__file__).parents[1] / "torch_pipelines" / "train_until_enough.py"


def missing_pytorch() -> str | None:
    """Why pods cannot have PyTorch, in one line; None if they can."""
    if (PACKAGES / "torch").is_dir():
        return None
    return f"{PACKAGES} has no PyTorch: `make integrations` installs it, with a Python 3.11"


def write_bytecode() -> None:
    """Import PyTorch once where it can be written; each of the twelve processes in pods would compile it otherwise."""
    if not (PACKAGES / "torch" / "__pycache__").exists():
        modules = "torch.distributed.run, torch.distributed.pipelining"
        subprocess.run([_INTEGRATIONS / "bin" / "python", "-c", f"import {modules}"], check=True, timeout=300)


def prepare_namespace(kubectl: ClusterCommand, namespace: str) -> None:
    """Make a namespace whose pods may mount folders of the node, with the example's scripts."""
    scripts = [*sorted(EXAMPLE.glob("*.py")), _TRAINING]
    kubectl.apply(
        namespace_object(namespace, pod_security="privileged"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _SCRIPTS, "namespace": namespace},
            "data": {path.name: path.read_text(encoding="utf-8") for path in scripts},
        },
    )


def pipeline_job(**spec: object) -> Object:
    """The manifest `two-nodes.yaml`, with fields of its spec replaced.

    What differs from the manifest for both pods of the job: an image of the tests in place of the user's, with the
    scripts and PyTorch mounted, and a training that ends when a test wants it.
    """
    job: Object = copy.deepcopy(yaml.safe_load((EXAMPLE / "two-nodes.yaml").read_text(encoding="utf-8")))
    del job["spec"]["schedule"]
    job["spec"].update(spec)
    container = container_of(job)
    container["image"] = container_of(digits_job())["image"]
    container["command"] = [_TRAINING.name if word == "train.py" else word for word in container["command"]]
    container["workingDir"] = _SCRIPTS_IN_POD
    container["env"].append({"name": "PYTHONPATH", "value": _PACKAGES_IN_POD})
    volumes: dict[str, tuple[str, Object]] = {
        "scripts": (_SCRIPTS_IN_POD, {"configMap": {"name": _SCRIPTS}}),
        "pytorch": (_PACKAGES_IN_POD, {"hostPath": {"path": str(PACKAGES), "type": "Directory"}}),
    }
    container["volumeMounts"] = [
        {"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in volumes.items()
    ]
    pod = job["spec"]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": name} | source for name, (_, source) in volumes.items()]
    pod["terminationGracePeriodSeconds"] = 2
    return job
