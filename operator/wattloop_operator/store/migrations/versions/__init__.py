"""One file a schema version, numbered; a released one never changes."""
