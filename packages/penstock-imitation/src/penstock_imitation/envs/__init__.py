"""Environments of benchmarks, which `penstock.envs` finds by their entry points."""
