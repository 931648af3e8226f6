"""Pure mathematics: the bandit over batch sizes, power limit selection, frequency plans, simulation on traces."""
