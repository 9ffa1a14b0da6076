"""Random programs: datasets and chains of transforms, each with its plain model. A seed names a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.episode_marks import EpisodeMarks
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.data.normalize import normalize
from penstock.data.summarize import statistics
from penstock.formats.memory import MemorySource
from penstock.plan import Plan, PlanTransform, Reordered, Select, Take
from penstock.plan.batched import Batches
from penstock.plan.weights import shares
from tests.programs import model
from tests.programs.model import EpisodeModel, Node, Record

LARGEST = 200  # samples in an epoch; transforms that would make more are left out
METHODS = ["best_fit_decreasing", "random_fit", "best_fit", "first_fit", "next_fit", "concat_split"]


@dataclass(frozen=True)
class Backwards(PlanTransform):
    """The last sample of each epoch first: a transform that is not the library's."""

    def reorder(self, plan: Plan) -> Plan:
        """The plan, read from its end."""
        return BackwardsPlan(plan, self)


class BackwardsPlan(Reordered):
    """What `Backwards` makes of a plan."""

    def positions(self, k: Any) -> Any:
        """Mirror within the epoch."""
        epoch, place = self.locate(k)
        return k + self.sizes(epoch) - 1 - 2 * place


@dataclass(frozen=True)
class Packing:
    """How sequences are packed."""

    ramp: list[tuple[int, int]]
    method: str
    overlong: str
    most: int | None
    repack: bool
    window: int


@dataclass(frozen=True)
class Recipe:
    """What all datasets of a program have in common, so that they can be mixed: how samples are cut, which columns
    stay, whether each is packed, and whether each has a function."""

    cut: tuple[Any, ...]
    narrow: bool
    inside: Packing | None
    mapped: bool
    derived: bool = False  # whether there is a column computed from episodes
    numbered: bool = False  # whether samples have the numbers of their rows
    goals: dict[str, Any] | None = None
    relabelled: bool = False
    scaled: bool = False  # whether the derived column is normalized

    @property
    def packable(self) -> bool:
        """Whether all columns with rows have equally many in every sample, and samples have no goals."""
        even = self.cut not in (("samples", True), ("sequences", True)) or self.narrow
        return self.cut[0] != "times" and even and self.goals is None

    @property
    def functions(self) -> bool:
        """Whether datasets have functions."""
        return self.mapped or self.relabelled or self.scaled or bool(self.goals and "original" in self.goals)


class Generator:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.sources = 0
        self.rows: dict[int, tuple[int, int, int]] = {}  # source, episode and step of each value of x
        self.states: dict[tuple[int, int], EpisodeModel] = {}  # by source and episode
        self.by_state: dict[int, tuple[int, int]] = {}  # source and episode of each value of observations
        self.chosen: dict[int, list[EpisodeModel]] = {}  # episodes of each source that are left

    def program(self) -> Node:
        """A dataset with its model."""
        rng, recipe = self.rng, self.recipe()
        node = self.built(recipe, rng.choice([0, 1, 1, 2]))
        if recipe.inside is None and not recipe.functions and recipe.packable and rng.random() < 0.5:
            node = self.ordered(self.packed(node, self.packing(recipe)), rng.randrange(3))
        if rng.random() < 0.15:
            node = self.numbered(node, "rows_step", "rows_episode", "rows_source")
        if rng.random() < 0.15:
            node = self.batched(node)
            return self.mapped(node) if not recipe.mapped and rng.random() < 0.3 else node
        if not recipe.mapped and rng.random() < 0.2:
            node = self.ordered(self.mapped(node), rng.randrange(2))
        return node

    def recipe(self) -> Recipe:
        """A way to cut samples, for all datasets of the program."""
        rng = self.rng
        length = rng.randint(1, 4)
        cut = rng.choice(
            [
                ("samples", rng.random() < 0.5),
                ("windows", length, rng.randint(0, 3), rng.randint(1, 3), rng.choice(["drop", "zero", "repeat"])),
                ("times", rng.sample(range(-3, 4), rng.randint(1, 3))),
                ("pairs", rng.randint(1, 3)),
                ("sequences", rng.random() < 0.3),
                ("sequences", False),
            ]
        )
        narrow, derived = rng.random() < 0.3, rng.random() < 0.4
        goals = self.goals() if cut[0] != "sequences" and rng.random() < 0.25 else None
        recipe = Recipe(cut, narrow, None, False, derived, rng.random() < 0.2, goals)
        inside = self.packing(recipe) if recipe.packable and rng.random() < 0.25 else None
        shown = derived and not narrow
        relabelled = goals is not None and shown and rng.random() < 0.5
        scaled = inside is None and shown and rng.random() < 0.2
        return replace(recipe, inside=inside, mapped=rng.random() < 0.3, relabelled=relabelled, scaled=scaled)

    def goals(self) -> dict[str, Any]:
        """Options of `goals`."""
        rng = self.rng
        strategy = rng.choice(["future", "final", "episode", "geometric", "random"])
        options: dict[str, Any] = {"strategy": strategy, "column": "observations", "offset": rng.randint(0, 2)}
        if strategy == "geometric":
            options["p"] = rng.choice([0.1, 0.5, 1.0])
        if rng.random() < 0.3:
            options |= {"column": rng.choice(["x", "observations"]), "original": "x", "k": rng.randint(1, 3)}
        return options

    def packing(self, recipe: Recipe) -> Packing:
        """Options of `pack`."""
        rng = self.rng
        method = rng.choice(METHODS)
        ramp = [(0, rng.randint(2, 12))]
        while rng.random() < 0.2:
            ramp.append((ramp[-1][0] + rng.randint(1, 20), rng.randint(2, 12)))
        return Packing(
            ramp,
            method,
            "split" if method == "concat_split" else rng.choice(["split", "drop", "truncate_left", "truncate_right"]),
            rng.randint(1, 6) if not recipe.narrow or rng.random() < 0.3 else None,
            rng.random() < 0.3,
            rng.choice([4, 64, 65536]),
        )

    def built(self, recipe: Recipe, depth: int) -> Node:
        """A dataset by the recipe, mixed of others if there is depth left."""
        rng = self.rng
        if depth and rng.random() < 0.6:
            return self.ordered(
                self.mixed([self.built(recipe, depth - 1) for _ in range(rng.randint(1, 3))]), rng.randrange(3)
            )
        node = self.ordered(self.leaf(recipe), rng.randrange(3))
        if recipe.numbered:
            node = self.numbered(node, "timesteps", "episodes", None)
        if recipe.goals is not None:
            node = self.ordered(self.with_goals(node, recipe, recipe.goals), rng.randrange(2))
        if recipe.inside is not None:
            node = self.ordered(self.packed(node, recipe.inside), rng.randrange(2))
        node = self.scaled(node) if recipe.scaled else node
        return self.mapped(node) if recipe.mapped else node

    def leaf(self, recipe: Recipe) -> Node:
        """Samples of one source of up to seven episodes, many of which are short or empty."""
        rng = self.rng
        lengths = [rng.choice([0, 0, 1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 7))]
        number, self.sources = self.sources, self.sources + 1
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        steps, n = int(offsets[-1]), len(lengths)
        x = np.arange(steps) + 1000 * (number + 1)
        words = [[int(value)] * (value % 3) for value in x]
        columns: dict[str, Any] = {
            "x": x,
            "words": Ragged.from_rows(words, np.int64),
            "observations": np.arange(steps + n) + 1000 * (number + 1) + 500_000,
            "e": np.arange(n) + 100 * (number + 1),
        }
        int64 = np.dtype(np.int64)
        fields = {
            "x": Field(int64),
            "words": Field(int64, (), kind="ragged"),
            "observations": Field(int64, (), "boundary"),
            "e": Field(int64, (), "episode"),
        }
        data = EpisodeDataset(MemorySource(Spec(fields), columns, offsets))
        first = offsets.tolist()
        episodes = [
            EpisodeModel(
                x[first[i] : first[i + 1]].tolist(),
                words[first[i] : first[i + 1]],
                columns["observations"][first[i] + i : first[i + 1] + i + 1].tolist(),
                int(columns["e"][i]),
            )
            for i in range(n)
        ]
        for i, one in enumerate(episodes):
            self.states[number, i] = one
            self.by_state |= dict.fromkeys(one.observations, (number, i))
            self.rows |= {value: (number, i, step) for step, value in enumerate(one.x)}
        text = f"source_{number}({lengths})"
        late = recipe.derived and rng.random() < 0.5
        if recipe.derived and not late:
            data, episodes, text = _derived(data, episodes, text)
        if rng.random() < 0.2:
            least = rng.randint(0, 3)
            condition: Any = rng.choice([f"total_steps >= {least}", lambda table: table["total_steps"] >= least])
            data, episodes = data.filter(condition), [one for one in episodes if len(one.x) >= least]
            text += f".filter(total_steps >= {least})"
        if rng.random() < 0.2 and episodes:
            rows = [rng.randrange(len(episodes)) for _ in range(rng.randint(1, 6))]
            rows = list(dict.fromkeys(rows))
            data, episodes, text = data[rows], [episodes[i] for i in rows], f"{text}[{rows}]"
        data, episodes, text = self.curated(data, episodes, text, late=late, spans=recipe.goals is None)
        self.chosen[number] = episodes
        return cut(data, episodes, recipe, text)

    def curated(
        self, data: EpisodeDataset, episodes: list[EpisodeModel], text: str, *, late: bool, spans: bool
    ) -> tuple[EpisodeDataset, list[EpisodeModel], str]:
        """Perhaps without some spans, and with the late column, which is computed from whole episodes in any case."""
        rng = self.rng
        excluded: dict[int, list[tuple[int, int]]] = {}
        index, lengths = data.episodes.index.tolist(), data.episodes.length.tolist()
        for episode, length in zip(index, lengths, strict=True) if spans and rng.random() < 0.25 else ():
            ends = [sorted(rng.randrange(length) for _ in range(2)) for _ in range(rng.randint(0, 2) if length else 0)]
            excluded |= {episode: [(first, last) for first, last in ends]} if ends else {}
        curation = Curation.of(data.source)
        for episode, each in excluded.items():
            curation[episode] = EpisodeMarks(excluded_spans=each)
        first = rng.random() < 0.5
        if excluded and first:
            data, text = data.apply(curation), f"{text}.without({excluded})"
        if late:
            data, episodes, text = _derived(data, episodes, text)
        if excluded and not first:
            data, text = data.apply(curation), f"{text}.without({excluded})"
        parts = [parts_of(one, excluded.get(e, [])) for e, one in zip(index, episodes, strict=True)]
        return data, [part for each in parts for part in each], text

    def mixed(self, parts: list[Node]) -> Node:
        """A mix of the parts that have samples, in all epochs; of the first with no share, if none has any."""
        rng = self.rng
        weights = [rng.randint(1, 5) if len(part.data) and not model.runs_out(part.data) else 0 for part in parts]
        if not any(weights):
            return parts[0]
        stop: Any = rng.choice(["first_exhausted", "all_exhausted", "drain", rng.randint(1, 40)])
        label = rng.choice(["source", "source", "part", None])
        repeats = {"0": rng.choice([0.5, 1, 1.5, 3])} if sum(map(bool, weights[1:])) and rng.random() < 0.3 else None
        data = mix([part.data for part in parts], weights, stop=stop, label=label, max_repeats=repeats)
        if len(data) > LARGEST:
            return parts[0]
        inner = ", ".join(part.text for part in parts)
        options = f"stop={stop!r}, label={label!r}, max_repeats={repeats}"
        node = Node(data, _nothing, f"mix([{inner}], {weights}, {options})")
        node.epoch = model.mixed(parts, node, shares(weights), label)
        return node

    def mapped(self, node: Node) -> Node:
        """With a function that adds a column, its own for this dataset."""
        factor = self.rng.randint(2, 99)
        data = node.data.map(lambda columns: {**columns.flat, "m": columns["x"] * factor})

        def epoch(e: int) -> list[Record]:
            return [record | {"m": _times(record["x"], factor)} for record in node.records(e)]

        return Node(data, epoch, f"{node.text}.map(x * {factor})")

    def scaled(self, node: Node) -> Node:
        """With the derived column an eighth of what it was, by statistics of -8 and 8; or there and back."""
        stats = statistics(from_arrays({"d": np.array([-8.0, 8.0])}, [2]))
        scale = normalize(stats, ["d"], self.rng.choice(["standard", "min_max", "quantile"]))
        back = self.rng.random() < 0.3
        data = node.data.map(scale).map(scale.inverse) if back else node.data.map(scale)

        def epoch(e: int) -> list[Record]:
            return [record | {"d": _times(record["d"], 1.0 if back else 0.125)} for record in node.records(e)]

        return Node(data, epoch, f"{node.text}.map(normalize{' and inverse' if back else ''})")

    def numbered(self, node: Node, step: str, episode: str, source: str | None) -> Node:
        """With the numbers of the rows of `x`."""
        data = node.data.with_row_numbers(step=step, episode=episode, source=source, of="x")
        first = [EpisodeDataset(each).steps()[:1] for each in node.data.sources]
        place = {int(columns["x"][0]) // 1000 - 1: n for n, columns in enumerate(first) if columns.n}

        def numbers(value: int) -> tuple[int, int, int]:
            number, i, t = self.rows[value]
            return t, i, place[number]

        def epoch(e: int) -> list[Record]:
            return [model.numbered(record, numbers, (step, episode, source)) for record in node.records(e)]

        return Node(data, epoch, f"{node.text}.with_row_numbers({step}, {episode}, {source}, of=x)")

    def batched(self, node: Node) -> Node:
        """In planned batches."""
        rng, plan = self.rng, node.data.plan
        widest = max(len(view.steps) for view in plan.views)
        size: Any = rng.choice([None, rng.randint(1, 9), [(0, rng.randint(1, 5)), (rng.randint(1, 40), 7)]])
        multiple = rng.choice([1, 1, 4])
        tokens = rng.randint(1, 5) * (-(-widest // multiple) * multiple) if size is None or rng.random() < 0.5 else None
        options = {
            "multiple": multiple,
            "sort": rng.random() < 0.7,
            "window": rng.randint(1, 30),
            "seed": rng.randrange(9),
        }
        data = node.data.apply(Batches(size, tokens=tokens, **options))
        made = Node(data, _nothing, f"{node.text}.apply(Batches({size}, tokens={tokens}, **{options}))")
        made.epoch = model.batched(node, made, size, tokens, bool(options["sort"]))
        return made

    def with_goals(self, node: Node, recipe: Recipe, options: dict[str, Any]) -> Node:
        """With goals, and the derived column computed again from them."""
        seed = self.rng.randrange(100)
        made = Node(node.data.goals(**options, seed=seed), _nothing, f"{node.text}.goals({options}, seed={seed})")
        column, strategy, offset = options["column"], options["strategy"], options["offset"]

        def allowed(record: Record) -> tuple[list[int], int | None]:
            """The goals that may be drawn, and the recorded one; None where the anchor is not known."""
            known = model.anchor_of(record, recipe.cut, self.rows)
            number = self.sources_of(node)
            everywhere = [value for one in self.chosen[number] for value in getattr(one, column)]
            if known is None:
                return everywhere, None
            _, i, t = known
            one = self.states[number, i]
            states = getattr(one, column)
            ways = {"random": everywhere, "episode": states, "final": states[-1:]}
            return ways.get(strategy, states[min(t + offset, len(states) - 1) :]), one.x[t]

        made.epoch = model.goals(node, made, allowed)
        if not recipe.relabelled:
            return made
        again = made.data.relabel(_by_goal)

        def epoch(e: int) -> list[Record]:
            return [
                r | {"d": _times(r["d"], r["goal"] % 3)} if r.get("goal_drawn", True) else r for r in made.records(e)
            ]

        return Node(again, lambda e: list(map(model.trimmed, epoch(e))), f"{made.text}.relabel(d * (goal % 3))")

    def sources_of(self, node: Node) -> int:
        """Number of the one source of a node."""
        source = EpisodeDataset(node.data.sources[0]).steps()[:1]
        return int(source["x"][0]) // 1000 - 1

    def packed(self, node: Node, how: Packing) -> Node:
        """In packs, whose rows have the numbers of the values there."""
        made = pack(node, how)
        if any(mark.name == "timesteps" for mark in node.data.plan.marks):
            inner = made.epoch

            def epoch(e: int) -> list[Record]:
                found = inner(e)
                for record in found:
                    wanted = model.numbered(
                        record, lambda value: self.rows[value][::-1], ("timesteps", "episodes", None)
                    )
                    assert wanted == record, "packs have other numbers of rows"
                return found

            made.epoch = epoch
        return made

    def ordered(self, node: Node, count: int) -> Node:
        """With `count` transforms that take or order samples."""
        for _ in range(count):
            node = self.rng.choice(
                [
                    self.shuffled,
                    self.shuffled,
                    self.repeated,
                    self.sharded,
                    self.nominal,
                    self.without,
                    self.taken,
                    self.where,
                    self.weighted,
                    _backwards,
                ]
            )(node)
        return node

    def shuffled(self, node: Node) -> Node:
        rng = self.rng
        blocks = {"block": rng.randint(1, 9), "pool": rng.randint(1, 4)} if rng.random() < 0.4 else {}
        seed = rng.randrange(100)
        made = Node(node.data.shuffle(seed, **blocks), _nothing, f"{node.text}.shuffle({seed}, **{blocks})")
        made.epoch = model.shuffled(node, made)
        return made

    def repeated(self, node: Node) -> Node:
        times = self.rng.randint(1, 3)
        if len(node.data) * times > LARGEST:
            return node

        def epoch(e: int) -> list[Record]:
            return [record for i in range(times) for record in node.records(e * times + i)]

        return Node(node.data.repeat(times), epoch, f"{node.text}.repeat({times})")

    def sharded(self, node: Node) -> Node:
        count = self.rng.randint(1, 3)
        index = self.rng.randrange(count)
        if node.data.plan.uneven:
            return node
        made = node.data.shard(index, count)
        return Node(made, lambda e: node.records(e)[index::count], f"{node.text}.shard({index}, {count})")

    def without(self, node: Node) -> Node:
        """Without some episodes of one of its sources."""
        rng, sources = self.rng, node.data.sources
        number = rng.randrange(len(sources))
        episodes = [e for e in range(len(sources[number])) if rng.random() < 0.25]
        values = EpisodeDataset(sources[number]).steps()[:1]
        if values.n == 0 or self.unknown_rows(node):
            return node
        known = int(values["x"][0]) // 1000 - 1
        left_out = {(known, e) for e in episodes}
        same = [s for s, other in enumerate(sources) if other is sources[number]]
        data = node.data
        for each in same:
            data = data.without(episodes, each)
        text = f"{node.text}.without({episodes}, {same})"
        return Node(data, lambda e: model.without(node.records(e), self.owners, left_out), text)

    def unknown_rows(self, node: Node) -> bool:
        """Whether there may be samples without a row or an episode column, whose episode the model cannot tell."""
        return all(read.name != "e" for read in node.data.plan.reads)

    def owners(self, name: str, value: int) -> tuple[int, int] | None:
        """Source and episode of a value of a column."""
        if name == "e":
            return divmod(value - 100, 100) if value else None
        if name == "goal" and value < 500_000:
            name = "x"
        if name == "x":
            return self.rows[value][:2] if value in self.rows else None
        return self.by_state.get(value)

    def nominal(self, node: Node) -> Node:
        samples = self.rng.randint(1, 2 * len(node.data) + 1)
        if node.data.plan.uneven or len(node.data) == 0 or samples > LARGEST:
            return node
        made = node.data.with_epoch_length(samples)
        return Node(
            made, lambda e: node.sequence(e * samples, (e + 1) * samples), f"{node.text}.with_epoch_length({samples})"
        )

    def taken(self, node: Node) -> Node:
        n = len(node.data)
        if not node.data.plan.steady or n == 0:
            return node
        rows = [self.rng.randrange(n) for _ in range(self.rng.randint(0, n))]
        made = node.data.apply(Take(np.array(rows, np.int64)))
        return Node(made, lambda _: [node.records(0)[i] for i in rows], f"{node.text}.apply(Take({rows}))")

    def where(self, node: Node) -> Node:
        if not node.data.plan.steady:
            return node
        made = node.data.filter(lambda columns: columns["x"].reshape(columns.n, -1).sum(axis=1) % 3 > 0)
        return Node(made, lambda _: [r for r in node.records(0) if _total(r) % 3], f"{node.text}.filter(sum of x % 3)")

    def weighted(self, node: Node) -> Node:
        rng, n = self.rng, len(node.data)
        if not node.data.plan.steady or n == 0:
            return node
        weights = [rng.choice([0, 1, 1, 2.5, rng.random()]) for _ in range(n)]
        weights[rng.randrange(n)] = 1
        options = {
            "draw": rng.choice(["systematic", "systematic", "random"]),
            "seed": rng.randrange(100),
            "epoch_length": rng.choice([None, rng.randint(1, 2 * n)]),
        }
        data = node.data.weighted(weights, **options)
        made = Node(data, _nothing, f"{node.text}.weighted({weights}, **{options})")
        made.epoch = model.weighted(node, made, weights)
        return made


def cut(data: EpisodeDataset, episodes: list[EpisodeModel], recipe: Recipe, text: str) -> Node:
    """The samples of a recipe."""
    name, *given = recipe.cut
    make: dict[str, Callable[..., MapDataset]] = {
        "samples": lambda following: data.transitions() if following else data.steps(),
        "windows": lambda length, past, stride, pad: data.windows(length, past=past, stride=stride, pad=pad),
        "times": lambda steps: data.delta_timestamps({"x": [step / 2 for step in steps]}, fps=2),
        "pairs": data.pairs,
        "sequences": lambda final: data.sequences(final=final),
    }
    cuts: dict[str, Any] = {
        "samples": model.samples, "windows": model.windows, "times": model.times, "pairs": model.pairs,
        "sequences": model.sequences,
    }  # fmt: skip
    made, records, text = make[name](*given), cuts[name](episodes, *given), f"{text}.{name}{tuple(given)}"
    if recipe.narrow:
        made, text = made.apply(Select(("x",))), f"{text}.select_columns('x')"
        masks = {mark.name for mark in made.plan.marks}
        records = [{name: value for name, value in r.items() if name == "x" or name in masks} for r in records]
    return Node(made, lambda _: records, text)


def pack(node: Node, how: Packing) -> Node:
    """The samples in packs; as they are where there is nothing to plan from."""
    most = how.most if how.most is not None or not _slots(node) else 6
    length = how.ramp if len(how.ramp) > 1 else how.ramp[0][1]
    options = {"method": how.method, "overlong": how.overlong, "repack": how.repack, "window": how.window}
    data = node.data.pack(length, max_sequences=most, **options)
    made = Node(data, _nothing, f"{node.text}.pack({length}, max_sequences={most}, **{options})")
    below = node
    if node.data.plan.steady and not how.repack and len(how.ramp) == 1:  # one plan for all epochs, made from the first
        below = Node(node.data, lambda _: node.records(0), node.text)
    made.epoch = model.packed(below, made, how.ramp, how.overlong, most, whole=how.method != "concat_split")
    return made


def _derived(
    data: EpisodeDataset, episodes: list[EpisodeModel], text: str
) -> tuple[EpisodeDataset, list[EpisodeModel], str]:
    """With the column `d`."""
    made = [replace(one, derived={"d": [_column_value(t, len(one.x)) for t in range(len(one.x))]}) for one in episodes]
    return data.with_column("d", _column), made, f"{text}.with_column('d')"


def parts_of(one: EpisodeModel, spans: list[tuple[int, int]]) -> list[EpisodeModel]:
    """The steps between spans, as episodes."""
    if not spans:
        return [one]
    kept = [not any(first <= t <= last for first, last in spans) for t in range(len(one.x))]
    cuts = [t for t in range(len(kept) + 1) if t in (0, len(kept)) or kept[t] != kept[t - 1]]
    return [
        EpisodeModel(
            one.x[a:b],
            one.words[a:b],
            one.observations[a : b + 1],
            one.e,
            {name: values[a:b] for name, values in one.derived.items()},
        )
        for a, b in pairwise(cuts)
        if kept[a]
    ]


def _column(episode: Episode) -> Any:
    """A value for each step, from the whole episode."""
    return np.array([_column_value(t, len(episode)) for t in range(len(episode))], np.int64)


def _column_value(step: int, steps: int) -> int:
    return 3 * (steps - step) + steps


def _by_goal(columns: Any) -> dict[str, Any]:
    d = columns["d"]
    return {"d": d * (columns["goal"] % 3).reshape(-1, *(1,) * (d.ndim - 1))}


def _slots(node: Node) -> bool:
    return any(read.name == "e" for read in node.data.plan.reads)


def _backwards(node: Node) -> Node:
    return Node(node.data.apply(Backwards()), lambda e: node.records(e)[::-1], f"{node.text}.apply(Backwards())")


def _nothing(epoch: int) -> list[Record]:
    raise AssertionError(f"no model of epoch {epoch} yet")


def _times(x: Any, factor: float) -> Any:
    return [value * factor for value in x] if isinstance(x, list) else x * factor


def _total(record: Record) -> int:
    """The sum of `x`; what is trimmed is zero."""
    x = record["x"]
    return sum(x) if isinstance(x, list) else x
