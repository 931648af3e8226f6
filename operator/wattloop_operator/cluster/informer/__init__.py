"""The informer: a cache of the API server's objects, fed by watch events and checked by resyncs."""
