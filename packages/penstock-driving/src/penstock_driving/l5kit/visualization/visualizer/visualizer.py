"""A scene to look at in a browser, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.narrowing import is_array, is_integer
from penstock.errors import DataError, require
from penstock_driving.l5kit.visualization.visualizer.common import FrameVisualization

_AROUND = 50  # metres that are shown to each side of the ego
_ON_SLIDE = """
const now = frames[cb_obj.value];
for (const [name, source] of Object.entries(sources)) {
    source.data = now[name];
}
const [x, y] = [now.ego.center_x[0], now.ego.center_y[0]];
figure.x_range.setv({start: x - around, end: x + around});
figure.y_range.setv({start: y - around, end: y + around});
"""


def visualize(scene_index: int, frames: Sequence[FrameVisualization]) -> Any:
    """Return a figure of a scene with a slider over its frames, for `bokeh.io.show` and `bokeh.plotting.save`.

    Agents have tooltips, and the legend hides trajectories.

    Needs `penstock-driving[bokeh]`.
    """
    models, plotting, layouts = (
        require(f"bokeh.{part}", "bokeh", "penstock-driving") for part in ("models", "plotting", "layouts")
    )
    if not frames:
        raise DataError("expected one frame or more, got none")
    labels = list(dict.fromkeys(way.legend_label for frame in frames for way in frame.trajectories))
    tables = [_tables(frame, labels) for frame in frames]
    sources = {name: models.ColumnDataSource(table) for name, table in tables[0].items()}
    ego = frames[0].ego
    hover = models.HoverTool(
        name="agents",
        tooltips=[("Type", "@agent_type"), ("Probability", "@prob{0.00}%"), ("Track id", "@track_id")],
    )
    figure = plotting.figure(
        title=f"Scene {scene_index}",
        match_aspect=True,
        x_range=(ego.center_x - _AROUND, ego.center_x + _AROUND),
        y_range=(ego.center_y - _AROUND, ego.center_y + _AROUND),
        tools=["pan", "wheel_zoom", hover, "save", "reset"],
        active_scroll="wheel_zoom",
    )
    figure.xgrid.grid_line_color = figure.ygrid.grid_line_color = None
    figure.patches("xs", "ys", line_width=0, alpha=0.5, color="color", source=sources["lanes"])
    figure.patches("xs", "ys", line_width=0, alpha=0.5, color="#B5B50D", source=sources["crosswalks"])
    figure.patches("xs", "ys", line_width=2, color="#B53331", source=sources["ego"])
    figure.patches("xs", "ys", line_width=2, color="color", name="agents", source=sources["agents"])
    for label in labels:
        figure.multi_line("xs", "ys", alpha=0.8, line_width=3, source=sources[label], color="color", legend_label=label)
    if labels:
        figure.legend.location, figure.legend.click_policy = "top_left", "hide"
    if len(frames) == 1:
        return layouts.column(figure)
    slider = models.Slider(start=0, end=len(frames) - 1, value=0, step=1, title="frame")
    given = {"figure": figure, "sources": sources, "frames": tables, "around": _AROUND}
    slider.js_on_change("value", models.CustomJS(args=given, code=_ON_SLIDE))
    return layouts.column(figure, slider)


def _tables(frame: FrameVisualization, labels: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Columns of everything in a frame, by name; of trajectories by their labels, whether there are any or not."""
    parts: dict[str, Sequence[Any]] = {
        "lanes": frame.lanes,
        "crosswalks": frame.crosswalks,
        "ego": [frame.ego],
        "agents": frame.agents,
    }
    for label in labels:
        parts[label] = [way for way in frame.trajectories if way.legend_label == label]
    fields = {
        "ego": ("xs", "ys", "color", "center_x", "center_y"),
        "agents": ("xs", "ys", "color", "track_id", "agent_type", "prob"),
    }
    return {
        name: {
            field: [_plain(getattr(each, field)) for each in part] for field in fields.get(name, ("xs", "ys", "color"))
        }
        for name, part in parts.items()
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON types; track ids as text, because JavaScript's numbers have 53 bits."""
    if is_array(value):
        return value.tolist()
    return str(value) if is_integer(value) and abs(int(value)) >> 53 else value
