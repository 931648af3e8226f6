"""The API group and version that all kinds share."""

from typing import Final

GROUP: Final = "wattloop.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "wattloop.dev/v1alpha1"
CATEGORY = "wattloop"
