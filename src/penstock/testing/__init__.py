"""The contracts that every format, plan, sampler and loader must pass: pytest classes to subclass in your own tests."""
