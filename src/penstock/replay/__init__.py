"""Train while collecting: a store of episodes that grows while batches are drawn from it."""
