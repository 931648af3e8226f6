"""Random requests of many callers, and the model that predicts each answer."""
