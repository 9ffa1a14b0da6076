"""Chess positions as Leela Chess Zero's networks see them: planes, policies, values."""
