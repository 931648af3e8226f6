"""Wattloop in training frameworks: one module for each, which imports its framework.

A script imports the module of the framework that it uses; nothing else of the client imports them.
"""
