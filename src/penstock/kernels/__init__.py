"""The few compiled loops. `library` says where their machine code comes from; numba is imported only to compile."""
