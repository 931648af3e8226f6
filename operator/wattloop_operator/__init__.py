"""The control plane: API models, engine, store, reporting API, kopf handlers and the local mode."""
