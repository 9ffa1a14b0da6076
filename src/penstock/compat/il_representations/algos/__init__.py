"""What is made of frames."""
