"""Figures of a policy's posterior and regret."""
