"""Tells the operator what the node's pods use: cumulative, so that what is lost or said twice changes nothing."""
