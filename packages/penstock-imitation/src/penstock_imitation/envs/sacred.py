"""The configuration as Sacred's ingredients, for experiments that are configured by Sacred."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import MissingExtraError, require
from penstock_imitation.envs.config import PARTS

if TYPE_CHECKING:
    from sacred import Ingredient  # pyright: ignore[reportMissingTypeStubs]


def ingredients() -> tuple[Ingredient, Ingredient, Ingredient]:
    """New ingredients `env_cfg`, `venv_opts` and `env_data` with the defaults of the dataclasses, in this order.

    Hand them to `Experiment(..., ingredients=[...])`. A captured function gets a plain mapping:
    `EnvConfig.from_mapping(_config["env_cfg"])` checks it and makes the dataclass of it.

        env_cfg, venv_opts, env_data = ingredients()
        experiment = Experiment("train", ingredients=[env_cfg, venv_opts, env_data])

        @experiment.main
        def run(_config):
            config = Config.from_mapping({key: _config[key] for key in Config.key_names()})
    """
    try:
        sacred = require("sacred", "sacred", "penstock-imitation")
    except MissingExtraError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == "pkg_resources":
            raise MissingExtraError(
                "sacred imports pkg_resources, which setuptools no longer has from version 82 on; "
                "install it with: pip install 'penstock-imitation[sacred]'"
            ) from error
        raise
    listed = [sacred.Ingredient(part.section) for part in PARTS]
    for ingredient, part in zip(listed, PARTS, strict=True):
        ingredient.add_config(part().to_mapping())
    return listed[0], listed[1], listed[2]
