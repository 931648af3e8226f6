"""Fuzz targets for untrusted input: agent requests, reports and manifests; see docs/internals/fuzzing.md."""
