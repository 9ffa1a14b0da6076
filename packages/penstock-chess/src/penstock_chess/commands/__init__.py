"""Commands that penstock-chess adds to `penstock`. A command is imported when it is called."""

COMMANDS = {
    "live": (
        "penstock_chess.commands.live:live",
        "Load training games from a growing folder, and show the speed of each stage.",
    ),
}
