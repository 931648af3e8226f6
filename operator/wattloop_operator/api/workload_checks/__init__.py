"""The API server's checks of a Job and of a pod template, without an API server."""
