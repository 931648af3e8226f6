"""Interfaces of other tools, so that a script changes one import."""
