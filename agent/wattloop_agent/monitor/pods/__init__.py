"""Callers that are pods: from the process that called to its pod, from the pod to the GPUs that the kubelet gave it."""
