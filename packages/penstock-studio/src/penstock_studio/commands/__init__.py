"""Commands that penstock-studio adds to `penstock`. A command is imported when it is called."""

COMMANDS = {
    "film": (
        "penstock_studio.commands.film:film",
        "Draw an episode: frames with actions and rewards, or curves of observations.",
    ),
    "export": (
        "penstock_studio.commands.export:export",
        "Write a dataset or an episode as one HTML file, or an episode for Rerun.",
    ),
    "serve": (
        "penstock_studio.commands.serve:serve",
        "Look at datasets in the browser: findings, episodes, pictures and curves.",
    ),
    "top": (
        "penstock_studio.commands.top:top",
        "Watch a running loader: busy share, rates and queue of each stage, bottleneck.",
    ),
}
