"""Pure mathematics: the bandit over batch sizes, and frequency plans."""
