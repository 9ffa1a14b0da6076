"""The door for programs written for Leela Chess Zero's training data loader."""
