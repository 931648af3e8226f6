"""Volumes: a default storage class without a provisioner, and one volume in the node's folder for the operator."""

import os
from typing import Any

from support.kubernetes_node.folders import NodeFolders

STORAGE_CLASS = "node-folder"
_OPERATOR_USER = 65532


def storage_objects(folders: NodeFolders) -> list[dict[str, Any]]:
    """Makes the folder and returns the objects: the class, and a volume that the first claim gets."""
    folder = folders.host / "volume"
    folder.mkdir()
    # Kubernetes does not hand a folder of the node over to a pod's user, as it does with other volumes.
    os.chown(folder, _OPERATOR_USER, _OPERATOR_USER)
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "node-folder"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "8Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": STORAGE_CLASS,
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        },
    ]
