"""Reading and writing archives of frames."""
