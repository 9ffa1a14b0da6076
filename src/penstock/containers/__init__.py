"""Ways of laying bytes out in files, apart from what the bytes mean."""
