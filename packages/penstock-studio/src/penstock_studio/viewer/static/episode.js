// An episode, alone or compared with others: pictures, texts and curves at one place of one clock.
//
// Everything that can be seen is in the address: row, range, hidden columns, marks A and B, compared episodes and how they are
// aligned, exact pictures. It follows when the row rests, because browsers limit how often it may change.

import { json, arrays, element, address, remember, short } from "./net.js";
import { curatePanel } from "./curate.js";
import { makeClock } from "./clock.js";
import { aligned, compareForm, parseEpisodes } from "./compare.js";
import { columnPlot } from "./plots.js";
import { keySheet, playerRow } from "./player.js";
import { savePanel } from "./panel_picture.js";
import { chip, episodeSide, stylesheet } from "./side.js";

const REST = 150; // milliseconds
const HEIGHT = 132, HIGHEST = 340; // of a curve, in CSS pixels
const BLOCK = 64, BLOCKS = 64; // rows of predictions that are read at a time, and how many of these are kept

const listed = (text) => new Set((text || "").split("|").filter(Boolean));
const numberOr = (text, otherwise) => (text === null || !/^-?\d+$/.test(text) ? otherwise : Number(text));

export async function episodePage(page, name, number, options) {
  await stylesheet("episode-style", "static/episode.css");
  const place = `#/${encodeURIComponent(name)}/${number}`;
  const state = { with: options.get("with"), align: options.get("align") || "step", diff: options.get("diff") === "1", hidden: listed(options.get("hide")), exact: listed(options.get("exact")),
    a: numberOr(options.get("a"), null), b: numberOr(options.get("b"), null) };
  const wanted = [{ name, number }, ...parseEpisodes(state.with, name)];
  const chunks = new Map(); // of predictions, by column and block
  let clock = null, plots = [], constant = new Set(), left = false, resting = 0, zoomed = false;
  const follow = (i) => (row) => clock.go(places[i].toX(row));
  const sides = await Promise.all(wanted.map((each, i) => episodeSide(each.name, each.number,
    { pick: (row) => follow(i)(row), save: (panel) => savePanel(panel, `${each.name} ${each.number}`), exact: state.exact, remember: () => rest() },
    each.name === name ? `Episode ${each.number}` : `${each.name}, episode ${each.number}`)));
  const places = await aligned(sides, state.align);
  const { info, api } = sides[0];
  const rows = (side) => Math.max(side.info.steps + (side.info.boundary ? 1 : 0), 1); // the observation after the last step is a place, too
  const ends = sides.flatMap((side, i) => [places[i].toX(0), places[i].toX(rows(side) - 1)]);
  const limits = [Math.floor(Math.min(...ends)), Math.ceil(Math.max(...ends))];
  const whole = { first: limits[0], last: limits[1] + 1 };

  const shared = {
    range: { ...whole }, height: HEIGHT, hidden: state.hidden, marks: state, pick: (x) => clock.go(x),
    zoom(first, last) {
      const size = Math.min(whole.last - whole.first, Math.max(last - first, 2));
      const begin = Math.min(Math.max(first, whole.first), whole.last - size);
      Object.assign(shared.range, { first: begin, last: begin + size });
      zoomed = size < whole.last - whole.first;
      load();
    },
    all: () => shared.zoom(whole.first, whole.last),
    hover(x) { for (const plot of plots) plot.hover(x); },
    toggle(key) {
      state.hidden.has(key) ? state.hidden.delete(key) : state.hidden.add(key);
      arrange();
      for (const plot of plots) if (key === plot.column || key.startsWith(`${plot.column}[`)) plot.toggled();
      rest();
    },
    say: (text) => { live.textContent = text; },
    save: (plot) => savePanel(plot, `${name} ${number}`),
  };

  const limited = (x) => Math.min(Math.max(x, limits[0]), limits[1]);
  clock = makeClock(info.rate, () => limits, () => [limited(shared.range.first), limited(shared.range.last - 1)], moved, () => player.state(clock));
  const live = element("p", { class: "unseen", "aria-live": "polite" });
  const constants = element("ul", { class: "counts constants" });
  const away = element("p", { class: "dim away" });
  const lines = element("p", { class: "dim" }, sides.map((side, i) => `${["solid", "dashed", "dotted", "long and short dashes"][i % 4]}: ${side.label}`).join("; "));
  const readout = element("p", { class: "dim marks-readout" });
  const curves = element("div", { class: "curves" });
  const compare = compareForm(place, state, info.curves, () => query());
  const marks = curatePanel(api, number, info, () => rowOf(0), follow(0), () => redraw());
  const zooming = element("div", { class: "bar" }, element("button", { onclick: () => zoom(0.5) }, "Zoom in"), element("button", { onclick: () => zoom(2) }, "Zoom out"), element("button", { onclick: shared.all }, "All steps"));
  const sheet = keySheet([zooming]);
  const player = playerRow(limits, info.rate, number, info.episodes, {
    toggle: () => clock.toggle(), step: (by) => clock.go(clock.x + by), episode: move, speed: (value) => clock.setSpeed(value), loop: () => clock.setLoop(!clock.loop), seek: (x) => clock.go(x),
  }, sheet);
  const seen = element("div", { class: "seen" }, ...sides.map((each) => each.body), marks.body, compare);
  const notes = sides.flatMap((side, i) => (places[i].missing ? [`${state.align.split(":").pop()} never changes in ${side.label}, which is aligned at its first step`] : []));
  const drawn = element("div", { class: "drawn" }, ...notes.map((text) => element("p", { class: "warning" }, text)), ...(sides.length > 1 ? [lines] : []), readout, curves, away, constants);
  page.replaceChildren(element("div", { class: `stage ${sides.length > 1 ? "two" : ""}` }, seen, drawn), player.body, sheet.body, live);
  document.body.classList.add("of-episode");

  const seenRow = (i) => Math.min(Math.max(places[i].rowOf(clock.x), 0), rows(sides[i]) - 1);
  const rowOf = (i) => Math.min(Math.max(places[i].rowOf(clock.x), 0), Math.max(sides[i].info.steps - 1, 0));

  function makePlots() {
    const columns = [...new Set(sides.flatMap((side) => side.info.curves))];
    plots = columns.flatMap((column) => {
      const of = sides.map((side, i) => ({ side, i })).filter(({ side }) => side.info.columns[column]);
      const member = ({ side, i }, query = {}) => ({ ...places[i], api: side.api, e: side.number, steps: side.info.steps + (side.info.columns[column].align === "boundary" ? 1 : 0), label: side.name === name ? String(side.number) : `${side.name}:${side.number}`, query });
      const facts = of[0].side.info.columns[column];
      const single = of.filter(({ side }) => side.info.predicted[column] === 1); // one prediction a step is a line of its own
      const made = [columnPlot(column, facts, [...of.map((each) => member(each)), ...single.map((each) => ({ ...member(each, { predicted: 1 }), label: "predicted" }))], shared)];
      if (state.diff && of.length > 1 && of[0].i === 0) {
        for (const other of of.slice(1)) {
          const query = { minus: other.side.number, of: other.side.name, ...places[other.i].difference };
          made.push(columnPlot(column, { ...facts, form: facts.form === "line" ? "line" : "step", values: {} }, [member(of[0], query)], shared, `${column}: ${sides[0].label} − ${other.side.label}`));
        }
      }
      return made;
    });
    curves.replaceChildren(...plots.map((plot) => plot.box));
    arrange();
  }

  // Columns that never change in the episode are one line instead of a curve each; hidden ones are names that show them again.
  function arrange() {
    const still = zoomed ? [] : plots.filter((plot) => plot.constant());
    if (!zoomed) constants.replaceChildren(...(still.length ? [element("li", {}, "constant:")] : []), ...still.map((plot) => {
      const values = plot.constant();
      return element("li", {}, `${plot.title} `, element("b", {}, values.slice(0, 8).map(short).join(", ") + (values.length > 8 ? ", ..." : "")));
    }));
    if (!zoomed) constant = new Set(still.map((plot) => plot.title));
    for (const plot of plots) plot.box.hidden = constant.has(plot.title) || state.hidden.has(plot.column);
    const hidden = [...new Set(plots.filter((plot) => state.hidden.has(plot.column)).map((plot) => plot.column))];
    away.replaceChildren(...(hidden.length ? ["hidden: "] : []), ...hidden.map((column) => element("button", { class: "chip", onclick: () => shared.toggle(column) }, column)));
  }
  function move(by) {
    if (number + by >= 0 && number + by < info.episodes) location.hash = address(`#/${encodeURIComponent(name)}/${number + by}`, { hide: [...state.hidden].join("|") });
  }

  function moved(x) {
    sides.forEach((each, i) => each.show(seenRow(i)));
    for (const plot of plots) plot.row(x);
    ahead();
    timeline();
    clearTimeout(resting);
    resting = setTimeout(rest, REST);
  }

  // Chunks of a policy at the step, read by blocks.
  async function ahead() {
    for (const plot of plots) {
      const steps = info.predicted[plot.column];
      if (!(steps > 1) || plot.title !== plot.column || plot.box.hidden) continue;
      const row = rowOf(0), key = `${plot.column} ${Math.floor(row / BLOCK)}`;
      if (!chunks.has(key)) {
        if (chunks.size >= BLOCKS) chunks.delete(chunks.keys().next().value);
        const first = Math.floor(row / BLOCK) * BLOCK;
        chunks.set(key, arrays(address(`${api}/predicted/${number}`, { column: plot.column, first, last: first + BLOCK })));
      }
      const { values, shape: [n, h, k] } = await chunks.get(key);
      if (left || row !== rowOf(0)) return;
      const at = row % BLOCK;
      plot.ahead(at < n ? Array.from({ length: h }, (_, i) => values.subarray((at * h + i) * k, (at * h + i + 1) * k)) : null);
    }
  }

  function timeline() {
    const seconds = (clock.x / info.rate).toFixed(2);
    const last = limits[1] - (info.boundary ? 1 : 0), isEnd = info.boundary && clock.x === limits[1];
    player.show(clock.x, isEnd ? `after step ${last}` : `step ${clock.x} of ${last}`, ` (${seconds} s at ${info.rate.toPrecision(3)}/s)`, marks.spans(), info.findings);
    const { a, b } = state;
    readout.textContent = [a === null ? "" : `A ${a}`, b === null ? "" : `B ${b}`, a === null || b === null ? "" : `B − A: ${b - a} steps, ${short((b - a) / info.rate)} s`].filter(Boolean).join(" · ");
    readout.hidden = a === null && b === null;
  }

  function query() {
    const { first, last } = shared.range;
    return { row: clock.x, range: zoomed ? `${first}-${last - 1}` : null, hide: [...state.hidden].join("|"), exact: [...state.exact].join("|"), a: state.a, b: state.b,
      with: state.with, align: state.align === "step" ? null : state.align, diff: state.diff ? "1" : null };
  }

  // When the row rests: its address, what a screen reader gets, and the exact values, which thinned curves do not have.
  async function rest() {
    if (left) return;
    remember(place, query());
    for (const plot of plots) plot.rest();
    if (clock.playing || !info.steps) return;
    const row = seenRow(0), values = await sides[0].values(row);
    if (left || row !== seenRow(0)) return;
    for (const plot of plots) if (plot.title === plot.column && values[plot.column]) plot.exact(row, values[plot.column]);
  }

  function redraw() {
    const drawing = draw();
    for (const each of sides) each.redraw();
    timeline();
    return drawing;
  }

  // Few curves share the height of the page. Those that need more than that have the usual height.
  async function draw() {
    const shown = plots.filter((plot) => !plot.box.hidden), growing = shown.filter((plot) => !plot.states).length;
    const render = () => { for (const plot of shown) plot.draw(marks.spans()); };
    render();
    await null; // uPlot lays a plot out in the next task
    if (left || shown.some((plot) => !plot.drawn())) return; // before all are read, nobody knows what is spare
    if (growing && grown(growing)) render();
    ahead();
  }

  // Whether the height of a curve is another now.
  function grown(growing) {
    const columns = getComputedStyle(curves).gridTemplateColumns.split(" ").length, { bottom } = constants.getBoundingClientRect();
    const spare = drawn.getBoundingClientRect().bottom - 16 - bottom - drawn.scrollTop;
    const height = Math.round(Math.min(HIGHEST, Math.max(HEIGHT, shared.height + spare / Math.ceil(growing / columns))));
    const isOther = Math.abs(height - shared.height) > 1;
    if (isOther) shared.height = height;
    return isOther;
  }

  function zoom(factor) {
    const { first, last } = shared.range;
    const size = Math.min(whole.last - whole.first, Math.max(10, Math.round((last - first) * factor)));
    const begin = clock.x - (size >> 1); // moved into the episode by `zoom`
    shared.zoom(begin, begin + size);
  }

  let turn = 0;
  async function load() {
    const mine = ++turn;
    curves.setAttribute("aria-busy", "true"); // until plots keep their places and their heights
    await Promise.all(plots.map((plot) => plot.load()));
    if (left || mine !== turn) return;
    arrange();
    await redraw();
    if (left || mine !== turn) return;
    curves.removeAttribute("aria-busy");
    rest();
  }

  function mark(key) {
    state[key] = state[key] === clock.x ? null : clock.x;
    for (const plot of plots) plot.marked();
    timeline();
    rest();
  }

  function say() {
    for (const plot of plots) plot.say(info.findings.filter((finding) => finding.column === plot.title).slice(0, 3).map((finding) => chip(finding, follow(0))));
  }

  // The check of the dataset is in work, or begins now; its findings are shown when it is done.
  async function findings() {
    const { state: checked } = await json(`${api}/check`);
    if (left) return;
    if (checked === "running") { setTimeout(findings, 500); return; }
    await Promise.all(sides.map((each) => each.findings()));
    if (left) return;
    say();
    timeline();
  }

  function pressed(event) {
    const { target } = event;
    if (target.tagName === "SELECT" || target.tagName === "TEXTAREA" || (target.tagName === "INPUT" && target.type !== "range")) return;
    if (sheet.isOpen() && event.key !== "?") return;
    if (event.key === " " && target.tagName === "BUTTON" && target.id !== "play") return; // the button is pressed
    const by = event.shiftKey ? 10 : 1;
    const act = {
      ArrowRight: () => clock.go(clock.x + by), ArrowLeft: () => clock.go(clock.x - by), Home: () => clock.go(limits[0]), End: () => clock.go(limits[1]), " ": clock.toggle,
      n: () => move(1), p: () => move(-1), "+": () => zoom(0.5), "-": () => zoom(2), 0: shared.all, a: () => mark("a"), b: () => mark("b"),
      "<": () => clock.faster(-1), ">": () => clock.faster(1), l: () => clock.setLoop(!clock.loop), "?": sheet.open, ...marks.keys,
    }[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  }

  const listeners = { keydown: pressed, resize: redraw, focus: marks.refresh };
  for (const [event, listener] of Object.entries(listeners)) addEventListener(event, listener);
  const sized = new ResizeObserver(() => { if (seen.offsetWidth !== width) { width = seen.offsetWidth; redraw(); } }); // also when the border of the parts is dragged
  let width = seen.offsetWidth;
  sized.observe(seen);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", redraw);
  makePlots();
  const range = /^(-?\d+)-(-?\d+)$/.exec(options.get("range") || "");
  if (range) {
    Object.assign(shared.range, { first: Math.max(Number(range[1]), whole.first), last: Math.min(Number(range[2]) + 1, whole.last) });
    zoomed = shared.range.last - shared.range.first < whole.last - whole.first;
  }
  clock.go(numberOr(options.get("row"), limits[0]));
  player.state(clock);
  say();
  load();
  if (!info.checked) findings();
  return () => {
    left = true;
    clock.leave();
    clearTimeout(resting);
    document.body.classList.remove("of-episode");
    sized.disconnect();
    theme.removeEventListener("change", redraw);
    for (const [event, listener] of Object.entries(listeners)) removeEventListener(event, listener);
    for (const each of [...sides, ...plots]) each.leave();
  };
}
