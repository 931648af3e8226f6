"""The files that every view loads, served from memory: a browser that goes away leaves no file open."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class StaticFile:
    """A file.

    Attributes:
        content: Its bytes.
        media_type: Their type.
        tag: Changes with the bytes.
    """

    content: bytes
    media_type: str
    tag: str

    def response(self, headers: Headers) -> Response:
        """The file, or only that the browser's copy is still valid."""
        known = {each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")}
        kept = {"ETag": self.tag, "Cache-Control": "private, no-cache"}
        if self.tag in known:
            return Response(status_code=304, headers=kept)
        return Response(self.content, media_type=self.media_type, headers=kept)


def static_files() -> dict[str, StaticFile]:
    """The files by name."""
    return {path.name: _read(path) for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
