"""Programs that run inside of pods."""
