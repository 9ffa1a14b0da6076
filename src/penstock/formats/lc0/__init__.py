"""Training data of Leela Chess Zero: files of chunks, a chunk the frames of one game."""
