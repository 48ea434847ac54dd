"""Placeholder while being built."""
