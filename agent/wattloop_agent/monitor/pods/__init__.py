"""Identifies callers as pods: from the process to its pod, from the pod to the GPUs that the kubelet assigned."""
