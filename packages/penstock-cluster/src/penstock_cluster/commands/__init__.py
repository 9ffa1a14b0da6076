"""Commands that penstock-cluster adds to `penstock`. A command is imported when it is called."""

COMMANDS = {
    "simulate": (
        "penstock_cluster.commands.simulate:simulate",
        "Simulate what reading on many hosts asks of a storage, and how long steps wait.",
    ),
}
