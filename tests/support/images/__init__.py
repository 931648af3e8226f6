"""The product's own images, built without a registry: `built_images` gives them as docker archives."""

from support.images.archive import write_archive
from support.images.building import ImagesUnavailableError, built_images, default_cache, missing_requirement

__all__ = ["ImagesUnavailableError", "built_images", "default_cache", "missing_requirement", "write_archive"]
