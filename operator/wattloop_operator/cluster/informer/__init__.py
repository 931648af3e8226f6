"""What is known of the API server's objects: a cache fed by watch events and checked by resyncs."""
