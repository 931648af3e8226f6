"""The API server's checks of manifests, without an API server: schema, defaults and CEL rules."""
