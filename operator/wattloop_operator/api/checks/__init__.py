"""The API server's checks on manifests, without an API server: schema, defaults, CEL rules, cron."""
