"""Finds frequency plans: the exact frontier of the relaxation, and plans close to it."""
