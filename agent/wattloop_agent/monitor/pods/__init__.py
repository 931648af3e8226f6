"""Identifies callers as pods, and the GPUs that the kubelet assigned to them."""
