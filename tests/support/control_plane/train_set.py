"""A kind of workload that tests define, with fields that its schema does not know."""

GROUP = "stand-in.example.com"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"trainsets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "TrainSet", "plural": "trainsets", "singular": "trainset"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for name in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}
WORKLOAD = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "TrainSet",
    "spec": {"workers": {"replicas": 2, "template": {"spec": {"containers": [{"name": "train", "image": "x:1"}]}}}},
}
