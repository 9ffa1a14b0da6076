"""The Minari standard: datasets of episodes in HDF5, Arrow or Parquet, read in place and written exactly."""
