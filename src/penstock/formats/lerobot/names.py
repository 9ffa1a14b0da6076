"""Names of columns: LeRobot joins words with dots, penstock has paths with the field's names.

| LeRobot | penstock |
|---|---|
| `observation`, `observation.images.top` | `observations`, `observations/images/top` |
| `action`, `action.arm` | `actions`, `actions/arm` |
| `next.reward`, `next.done`, `next.truncated` | `rewards`, `terminations`, `truncations` |
| any other, such as `gripper.width` | the words as a path, `gripper/width` |

A name whose path would be below the path of another column keeps its dots: next to `action`, the column `action.arm`
is `actions.arm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.core.columns import under

EXACT: Mapping[str, str] = {
    "next.reward": "rewards",
    "next.done": "terminations",
    "next.truncated": "truncations",
}
FIRST: Mapping[str, str] = {"observation": "observations", "action": "actions"}
_EXACT_BACK = {path: name for name, path in EXACT.items()}
_FIRST_BACK = {path: name for name, path in FIRST.items()}


def path_of(name: str) -> str:
    """Return the path of a feature."""
    if name in EXACT:
        return EXACT[name]
    head, *rest = name.split(".")
    return "/".join([FIRST.get(head, head), *rest])


def name_of(path: str) -> str:
    """Return the name of a feature for a path."""
    if path in _EXACT_BACK:
        return _EXACT_BACK[path]
    head, *rest = path.split("/")
    return ".".join([_FIRST_BACK.get(head, head), *rest])


def paths_of(names: Iterable[str]) -> dict[str, str]:
    """Return the path of each feature. No path is below another one, and none occurs twice."""
    wanted = {name: path_of(name) for name in names}
    paths: dict[str, str] = {}
    for name, path in wanted.items():
        others = [other for known, other in wanted.items() if known != name]
        nested = any(under(other, path) for other in others)
        paths[name] = path.replace("/", ".") if nested else path
    return paths
