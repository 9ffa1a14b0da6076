"""The APIs of other libraries over penstock: `minari`, `airio`, `lerobot` and `diffusion_policy`.

A program changes one import. Each mirror has the names and arguments of one version, which its page names.
"""

__version__ = "0.1.0"
