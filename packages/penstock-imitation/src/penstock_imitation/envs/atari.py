"""The benchmark `atari`: the games of the Arcade Learning Environment, as Stable-Baselines3 preprocesses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.containers.pickle import ColorSpace
from penstock.core.spaces import Discrete, Space
from penstock.errors import DataError, closest
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, demand, image_space
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

SIZE, STACK = 84, 4

# Games by the number of their actions (ale-py 0.12).
_BY_COUNT = {
    3: "Backgammon Freeway Skiing",
    4: "Atlantis Atlantis2 Blackjack Breakout Casino Kaboom",
    5: "Frogger Pacman Surround Tetris VideoCheckers",
    6: "AirRaid BasicMath Bowling Carnival DemonAttack Galaxian KingKong NameThisGame Pong Pooyan Qbert SirLancelot "
    "SpaceInvaders UpNDown",
    7: "Assault",
    8: "Gopher Phoenix Tutankham",
    9: "Asterix BeamRider CrazyClimber Enduro Koolaid LostLuggage MsPacman VideoPinball",
    10: "Amidar MrDo Othello TicTacToe3D TimePilot VideoChess WizardOfWor",
    12: "Turmoil",
    14: "Asteroids KeystoneKapers KungFuMaster",
    16: "JourneyEscape",
    18: "Adventure Alien BankHeist BattleZone Berzerk Boxing Centipede ChopperCommand Crossbow Darkchambers Defender "
    "DonkeyKong DoubleDunk Earthworld ElevatorAction Entombed Et FishingDerby FlagCapture Frostbite Gravitar Hangman "
    "HauntedHouse Hero HumanCannonball IceHockey Jamesbond Kangaroo Klax Krull LaserGates MarioBros MiniatureGolf "
    "MontezumaRevenge Pitfall Pitfall2 PrivateEye Riverraid RoadRunner Robotank Seaquest Solaris SpaceWar StarGunner "
    "Superman Tennis Trondead Venture VideoCube WordZapper YarsRevenge Zaxxon",
}
ACTIONS = {game: n for n, games in _BY_COUNT.items() for game in games.split()}

# Games that came after the ids `<game>NoFrameskip-v4` and have none.
_LATE = (
    "Atlantis2 Backgammon BasicMath Blackjack Casino Crossbow Darkchambers DonkeyKong Earthworld Entombed Et "
    "FlagCapture Frogger Galaxian Hangman HauntedHouse HumanCannonball Kaboom KeystoneKapers KingKong Klax Koolaid "
    "LaserGates LostLuggage MarioBros MiniatureGolf MrDo Othello Pacman Pitfall2 SirLancelot SpaceWar Superman "
    "Surround Tetris TicTacToe3D Trondead Turmoil VideoCheckers VideoChess VideoCube WordZapper"
)
_GAMES = {
    **{f"{game}NoFrameskip-v4": game for game in ACTIONS if game not in _LATE.split()},
    **{f"ALE/{game}-v5": game for game in ACTIONS},
}


class Atari(Benchmark):
    """A task is a Gymnasium id: `<game>NoFrameskip-v4`, or `ALE/<game>-v5` with its sticky actions.

    Observations are uint8 `[4, 84, 84]`, gray, oldest frame first, black before an episode's first frame. An action is
    repeated for 4 frames for any id, and the brighter of the last two frames counts in each pixel. A reset does nothing
    for 1 to 30 frames, then presses FIRE where a game waits for it. A lost life terminates an episode (the next goes on
    from there, unless a seed is given); rewards are -1, 0 or 1.
    """

    name: ClassVar[str] = "atari"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """The ids of 104 games, and the older ids of 62 of them."""
        return tuple(_GAMES)

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """Four gray images, and the buttons that mean something in the game."""
        return image_space(STACK, SIZE, SIZE), Discrete(ACTIONS[_game(config.task_name)])

    def color_space(self, config: EnvConfig) -> ColorSpace:
        return ColorSpace.GRAY

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown id, `MissingExtraError` without ale-py."""
        _game(config.task_name)
        demand(["ale_py", "gymnasium"], "install with: pip install 'penstock-imitation[atari]'")
        return Factory("penstock_imitation.envs.atari_env:build", config)


def _game(task: str) -> str:
    if task not in _GAMES:
        raise DataError(
            f"unknown task {task!r} of the benchmark 'atari'{_close(task)}; expected <game>NoFrameskip-v4 "
            f"or ALE/<game>-v5 with one of the games {', '.join(sorted(ACTIONS))}"
        )
    return _GAMES[task]


def _close(task: str) -> str:
    """The id that was probably meant, by its game: in all else ids are alike."""
    ids = [i for i in _GAMES if i.startswith("ALE/") == task.startswith("ALE/")] + list(_GAMES)
    by_game = {_GAMES[i].lower(): i for i in reversed(ids)}
    bare = task.lower().removeprefix("ale/").split("noframeskip")[0].split("-v")[0]
    game = closest(bare, by_game)
    return "" if game is None else f"; did you mean {by_game[game]!r}?"
