"""The privileged part: the only process that may change a GPU. No network, no token; five verbs on a unix socket."""
