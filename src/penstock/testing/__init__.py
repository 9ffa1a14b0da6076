"""The contracts that every format, plan and sampler must pass: pytest classes to subclass in your own tests."""
