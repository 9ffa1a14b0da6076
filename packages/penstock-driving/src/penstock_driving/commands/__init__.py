"""Commands that penstock-driving adds to `penstock`. A command is imported when it is called."""

COMMANDS = {
    "view": ("penstock_driving.commands.view:view", "Draw a scene of a driving log from above: pictures, or a film."),
}
