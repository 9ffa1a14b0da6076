"""Record episodes: `Recorder` for any loop, collectors for Gymnasium environments, hooks, and rollouts."""
