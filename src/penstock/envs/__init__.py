"""Environments by benchmark name: what to build, what it gives, and how it is vectorised."""
