"""Offers a machine's simulated GPUs to its kubelet as `nvidia.com/gpu`, as NVIDIA's device plugin does."""

from support.device_plugin.command import device_plugin_command

__all__ = ["device_plugin_command"]
