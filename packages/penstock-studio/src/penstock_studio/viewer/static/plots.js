// Curves of a column over the steps, with uPlot: a line for measured values, steps for integers, bands for values with
// names. Members are the episodes that have the column; their rows are drawn at `toX(row)`, in rows of the first one.
//
// `page` is shared by all plots: `range` {first, last}, `hidden` names, `pick(x)`, `zoom(first, last)`, `all()`,
// `hover(x)`, `toggle(name)`, `save(plot)`. A plot can have the focus: arrow keys move the row, and what it says there is read out.

import uPlot from "./uplot.js";
import { element, series, short } from "./net.js";
import { drawSpans } from "./curves.js";

const POINTS = 1500;
const PINCH = 60; // milliseconds from one zoom of two fingers to the next
const COLORS = 16; // of the style sheet, which has others for the dark
const AXIS = 24, LANE = 22, LEFT = 58; // CSS pixels
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
export const BANDS = ["#5f6d75", "#1971c2", "#c2410c", "#237a35", "#9c36b5", "#c92a2a", "#0b7285", "#a85d00", "#5f3dc4", "#c2255c", "#4c7a0b", "#364fc7"]; // of values with names, below white text
const FLAGS = [[1, "mark", "NaN or infinite"], [2, "outside", "outside its space"]];
let numbers = 0;

// A value as it is shown: with its name where it has one.
export function said(value, names) {
  if (value === null || value === undefined) return "";
  const name = names[String(value)];
  if (name !== undefined) return name === String(value) ? name : Object.keys(names).length === 2 && names[0] === "false" ? name : `${value} = ${name}`;
  return short(value);
}

export function columnPlot(column, facts, members, page, title = column) {
  const holder = element("div", { class: "holder" });
  const notes = element("span", { class: "notes" });
  const legend = element("ul", { class: "values" });
  const table = element("table", { id: `table-${++numbers}` });
  const surface = element("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${title} over steps`, "aria-describedby": table.id, onfocus: () => tell() }, holder);
  const buttons = element("span", { class: "tools" },
    element("button", { class: "plain", title: "save a picture of this plot", "aria-label": `picture of ${title}`, onclick: () => page.save(plot) }, "⤓"),
    element("button", { class: "plain", title: "hide this column", "aria-label": `hide ${title}`, onclick: () => page.toggle(column) }, "×"));
  const box = element("div", { class: `curve ${facts.form}` },
    element("div", { class: "name" }, element("b", {}, title), ...(facts.unit ? [element("span", { class: "dim unit" }, `[${facts.unit}]`)] : []), notes, buttons, legend), surface, element("div", { class: "unseen" }, table));
  const states = facts.form === "state";
  const steps = facts.form !== "line";
  let data = members.map(() => null); // {values, flags, n, k, first, rows}
  let chart = null, items = [], lines = {}, spans = { tagged: [], excluded: [] }, chips = [], failed = "", exact = null;
  let base = 0; // of values that differ by less than a drawing can place, such as times in nanoseconds: it is subtracted
  let asked = 0, head = 0, over = null, dragged = false, ahead = null;

  const count = () => Math.max(0, ...data.map((each) => each?.k ?? 0));
  const nameOf = (j) => facts.names[j] ?? (count() > 1 ? String(j) : column.split("/").pop());
  const variable = (j) => `--curve${j % COLORS}`;
  const colorOf = (j) => getComputedStyle(box).getPropertyValue(variable(j));
  const isHidden = (j) => page.hidden.has(`${column}[${j}]`);
  const cut = (each, i) => Math.floor((i * each.rows) / each.n); // first row of a point
  const thin = (each) => each.rows > each.n;

  // Smallest and largest value of an element at a row: they differ where a point has several rows.
  function at(m, j, row) {
    const each = data[m];
    if (!each || j >= each.k || row < each.first || row >= each.first + each.rows) return null;
    if (exact && exact.m === m && exact.row === row && exact.values) return [exact.values[j], exact.values[j]];
    let i = Math.min(each.n - 1, Math.floor(((row - each.first) * each.n) / each.rows));
    while (i + 1 < each.n && cut(each, i + 1) <= row - each.first) i++;
    return [each.values[i * 2 * each.k + j], each.values[(i * 2 + 1) * each.k + j]];
  }

  function words(m, j, row) {
    const pair = at(m, j, row);
    if (!pair) return "";
    const [least, most] = pair;
    return least === most || (Number.isNaN(least) && Number.isNaN(most)) ? said(least, facts.values) : `${said(least, facts.values)} … ${said(most, facts.values)}`;
  }

  // Points of a member for uPlot: x, and y of each element; two points where they stand for several rows.
  function points(m) {
    const each = data[m], both = thin(each) ? 2 : 1, shift = steps ? -0.5 : 0;
    const size = each.n * both + (steps && each.n ? 1 : 0);
    const x = new Array(size), ys = Array.from({ length: each.k }, () => new Array(size));
    for (let i = 0; i < each.n; i++) {
      for (let side = 0; side < both; side++) {
        const place = i * both + side;
        x[place] = members[m].toX(each.first + (both === 1 ? i : ((i + side / 2) * each.rows) / each.n)) + shift;
        for (let j = 0; j < each.k; j++) {
          const value = each.values[(i * 2 + side) * each.k + j];
          ys[j][place] = Number.isFinite(value) ? value - base : null;
        }
      }
    }
    if (steps && each.n) { // the last row is as wide as the others
      x[size - 1] = members[m].toX(each.first + each.rows - 1) + 0.5;
      for (const y of ys) y[size - 1] = y[size - 2];
    }
    return [x, ...ys];
  }

  function options() {
    const style = getComputedStyle(box);
    const color = (name) => () => style.getPropertyValue(name);
    const axis = { stroke: color("--dim"), font: "11px system-ui, sans-serif", grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, gap: 4 };
    const lanes = count() * members.length;
    const listed = members.flatMap((member, m) => Array.from({ length: data[m]?.k ?? 0 }, (_, j) => ({
      label: nameOf(j), stroke: colorOf(j), width: 1.4, dash: DASHES[m % DASHES.length], show: !isHidden(j), cap: "round",
      paths: states ? () => null : steps ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
      points: { show: !steps && members.length === 1, size: 4, filter: (u, i) => (steps || members.length > 1 ? null : alone(u.data[i], u.over.clientWidth)) },
    })));
    return {
      width: Math.max(80, holder.clientWidth), height: states ? lanes * LANE + AXIS + 8 : page.height, padding: [6, 8, 0, 0],
      legend: { show: false }, series: [{}, ...listed],
      scales: { x: { time: false, range: () => [page.range.first - 0.5, Math.max(page.range.last, page.range.first + 1) - 0.5] },
        y: { range: (u, low, high) => (states || low === null ? [0, 1] : low === high ? [low - room(low), high + room(low)] : [low - (high - low) * 0.06, high + (high - low) * 0.06]) } },
      axes: [{ ...axis, size: AXIS, space: 70, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1e8] },
        { ...axis, size: LEFT, show: true, space: 24, grid: { ...axis.grid, show: !states }, values: (u, ticks) => ticks.map(states ? () => "" : facts.unit === "ns" && base ? (value) => `${tick(value / 1e9)} s` : tick) }],
      cursor: { y: false, points: { show: !states, size: 7 }, sync: { key: "penstock", scales: ["x", null] }, drag: { x: true, y: false, setScale: false, dist: 5 },
        bind: { dblclick: () => () => { page.all(); return null; } } },
      hooks: { ready: [settled], drawClear: [(u) => { backdrop(u); if (states) bands(u); }], setCursor: [moved], setSelect: [selected] },
    };
  }

  // A mouse over this plot is over the same step in all of them.
  function moved(u) {
    if (!surface.matches(":hover")) return;
    page.hover(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null);
  }

  function selected(u) {
    const { left, width } = u.select;
    if (width < 5) return;
    dragged = true;
    const [first, last] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    page.zoom(Math.ceil(first), Math.floor(last) + 1);
  }

  function backdrop(u) {
    const style = getComputedStyle(box);
    const { top, height } = u.bbox;
    const place = (step) => u.valToPos(step, "x", true);
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, top, u.bbox.width, height);
    u.ctx.clip();
    drawSpans(u.ctx, spans, place, style, top, height);
    const each = data[0];
    for (let i = 0; each && i < each.n; i++) {
      if (!each.flags[i]) continue;
      u.ctx.fillStyle = style.getPropertyValue(each.flags[i] & 1 ? "--mark" : "--outside");
      const from = place(members[0].toX(each.first + cut(each, i)) - 0.5), to = place(members[0].toX(each.first + cut(each, i + 1)) - 0.5);
      u.ctx.fillRect(from, top, Math.max(2 * devicePixelRatio, to - from), height);
    }
    u.ctx.restore();
  }

  // Bands of equal values, with their names where they are wide enough. A point of several values shows the smallest below, the largest above.
  function bands(u) {
    const { ctx } = u, scale = devicePixelRatio || 1, style = getComputedStyle(box);
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, 0, u.bbox.width, u.bbox.top + u.bbox.height);
    ctx.clip();
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    let lane = 0;
    members.forEach((member, m) => {
      for (let j = 0; j < (data[m]?.k ?? 0); j++, lane++) {
        if (isHidden(j)) continue;
        const each = data[m], top = u.bbox.top + lane * LANE * scale, tall = (LANE - 4) * scale;
        const read = (i, side) => each.values[(i * 2 + side) * each.k + j];
        for (let i = 0; i < each.n;) {
          const least = read(i, 0), most = read(i, 1);
          let end = i + 1;
          while (end < each.n && read(end, 0) === least && read(end, 1) === most) end++;
          const from = u.valToPos(member.toX(each.first + cut(each, i)) - 0.5, "x", true), to = u.valToPos(member.toX(each.first + cut(each, end)) - 0.5, "x", true);
          ctx.fillStyle = stateColor(least);
          ctx.fillRect(from, top, Math.max(1, to - from - (to - from > 6 ? scale : 0)), tall);
          if (most !== least) { ctx.fillStyle = stateColor(most); ctx.fillRect(from, top, to - from, tall / 2); }
          const text = facts.values[String(least)] ?? String(least), left = Math.max(from, u.bbox.left);
          if (most === least && ctx.measureText(text).width + 8 * scale < Math.min(to, u.bbox.left + u.bbox.width) - left) { ctx.fillStyle = "#fff"; ctx.fillText(text, left + 4 * scale, top + tall / 2 + scale); }
          i = end;
        }
        ctx.fillStyle = style.getPropertyValue("--dim");
      }
    });
    ctx.restore();
  }

  function baseOf() {
    let low = Infinity, high = -Infinity;
    for (const each of data) for (const value of each?.values ?? []) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    return high > low && high - low < Math.max(Math.abs(low), Math.abs(high)) * 1e-5 ? low : 0;
  }

  function make() {
    chart?.destroy();
    chart = null;
    base = states ? 0 : baseOf();
    say();
    const tables = data.map((each, m) => (each ? points(m) : [[]]));
    chart = new uPlot(options(), tables.length > 1 ? uPlot.join(tables) : tables[0], holder);
    lines = { head: line("head"), a: line("a"), b: line("b") };
    ahead = element("canvas", { class: "ahead" });
    chart.over.append(...Object.values(lines), ahead);
    chart.over.addEventListener("mousedown", () => { dragged = false; });
    chart.over.addEventListener("click", (event) => { if (!dragged) page.pick(valueAt(event.clientX)); });
    chart.over.addEventListener("mouseleave", () => page.hover(null));
  }

  // Places are known when the plot was laid out, a little after it was made.
  function settled(u) {
    if (u !== chart && chart) return;
    plot.row(head);
    plot.marked();
  }

  const line = (kind) => element("div", { class: `line ${kind}`, "data-name": kind === "head" ? undefined : kind.toUpperCase() });

  function put(line, x) {
    const seen = x !== null && x >= page.range.first - 0.5 && x <= page.range.last - 0.5;
    line.hidden = !seen;
    if (seen) line.style.transform = `translateX(${chart.valToPos(x, "x")}px)`;
  }

  function makeLegend() {
    items = [];
    box.classList.toggle("one", count() === 1 && members.length === 1);
    legend.replaceChildren(...Array.from({ length: count() }, (_, j) => {
      const shown = members.map(() => [element("output", {}), element("span", { class: "hovered" })]);
      const difference = element("span", { class: "difference" });
      items.push({ shown, difference });
      const swatch = element("i", { class: "swatch" });
      swatch.style.background = states ? "none" : `var(${variable(j)})`;
      return element("li", {}, element("button", { class: "plain label", "aria-pressed": String(!isHidden(j)), onclick: () => page.toggle(`${column}[${j}]`) }, swatch, nameOf(j)),
        ...shown.flatMap(([value, hovered], m) => { value.title = members[m].label; return [value, hovered]; }), difference);
    }), ...(facts.elements > count() && count() ? [element("li", { class: "dim" }, `${count()} of ${facts.elements} elements`)] : []));
  }

  function readOut() {
    const { a, b } = page.marks;
    items.forEach(({ shown, difference }, j) => {
      shown.forEach(([value, hovered], m) => {
        value.textContent = words(m, j, members[m].rowOf(head));
        hovered.textContent = over === null ? "" : words(m, j, members[m].rowOf(over));
      });
      const pair = a === null || b === null ? null : [at(0, j, members[0].rowOf(a)), at(0, j, members[0].rowOf(b))];
      difference.textContent = pair && pair[0] && pair[1] && !states ? `Δ ${short(pair[1][0] - pair[0][0])}` : "";
    });
  }

  // What a screen reader has instead of the curve.
  function tell() {
    const row = members[0].rowOf(head);
    const cells = (values, tag = "td") => element("tr", {}, ...values.map((value) => element(tag, {}, value)));
    const all = Array.from({ length: count() }, (_, j) => {
      let low = Infinity, high = -Infinity;
      const each = data[0];
      for (let i = j; each && i < each.values.length; i += each.k) if (Number.isFinite(each.values[i])) { low = Math.min(low, each.values[i]); high = Math.max(high, each.values[i]); }
      return cells([nameOf(j), words(0, j, row), low <= high ? String(low) : "", low <= high ? String(high) : ""]);
    });
    table.replaceChildren(element("caption", {}, `${title}, steps ${page.range.first} to ${page.range.last - 1}`), cells(["element", `at step ${row}`, "smallest", "largest"], "th"), ...all);
    if (document.activeElement === surface) page.say(`${title} at step ${row}: ${Array.from({ length: count() }, (_, j) => `${nameOf(j)} ${words(0, j, row)}`).join(", ")}`);
  }

  function say() {
    const flags = data.reduce((all, each) => (each ? each.flags.reduce((found, flag) => found | flag, all) : all), 0);
    notes.replaceChildren(...chips, ...(base ? [element("span", { class: "dim" }, `drawn from ${base} on`)] : []), ...(failed ? [element("span", { class: "error", role: "alert" }, failed)] : []), ...FLAGS.filter(([bit]) => flags & bit).map(([, color, text]) => element("span", { class: "swatch", "data-color": color }, text)));
  }

  // Two fingers, or the wheel with Ctrl, zoom around what is under them; one finger moves the row. The plot is made again
  // meanwhile, so the places are asked for on the surface, which stays.
  const fingers = new Map();
  let grip = null, pinched = 0;
  const valueAt = (x) => chart.posToVal(x - chart.over.getBoundingClientRect().left, "x");

  function around(x, value, perPixel) {
    const { left, width } = chart.over.getBoundingClientRect();
    const first = value - (x - left) * perPixel;
    page.zoom(Math.round(first + 0.5), Math.round(first + width * perPixel + 0.5));
  }

  function lift({ pointerId }) {
    fingers.delete(pointerId);
    grip = null;
  }

  surface.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch" || !chart) return;
    fingers.set(event.pointerId, event.clientX);
    const places = [...fingers.values()];
    grip = places.length === 2 ? places.map(valueAt) : null;
  });
  surface.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId) || !chart) return;
    fingers.set(event.pointerId, event.clientX);
    const [one, other] = [...fingers.values()];
    if (fingers.size === 1) page.pick(valueAt(one));
    if (!grip || Math.abs(other - one) < 8 || event.timeStamp < pinched + PINCH) return;
    pinched = event.timeStamp;
    around(one, grip[0], Math.abs((grip[1] - grip[0]) / (other - one)));
  });
  for (const kind of ["pointerup", "pointercancel"]) surface.addEventListener(kind, lift);
  surface.addEventListener("wheel", (event) => {
    if (!event.ctrlKey || !chart) return;
    event.preventDefault();
    const { first, last } = page.range, factor = 2 ** (Math.sign(event.deltaY) / 2);
    around(event.clientX, valueAt(event.clientX), ((last - first) * factor) / chart.over.clientWidth);
  }, { passive: false });

  const plot = {
    column, box, title, states,
    say(found) { chips = found; say(); },
    async load() {
      const mine = ++asked;
      failed = "";
      const found = await Promise.all(members.map(async (member) => {
        const first = Math.max(0, Math.floor(member.rowOf(page.range.first, false)));
        const last = Math.min(Math.ceil(member.rowOf(page.range.last, false)), Math.max(member.steps, 1));
        if (last <= first) return null;
        const read = await series(`${member.api}/series/${member.e}`, { column, first, last, points: POINTS, ...member.query });
        return { ...read, first, rows: last - first };
      })).catch((error) => {
        failed = error.message;
        return members.map(() => null);
      });
      if (mine !== asked) return; // another zoom was asked for since
      data = found;
      exact = null;
      say();
      if (items.length !== count()) makeLegend();
      if (!box.hidden) plot.draw();
    },
    draw(now = spans) {
      spans = now;
      if (!data.some(Boolean)) return;
      make();
      tell();
    },
    row(x) {
      head = x;
      if (!chart) return;
      put(lines.head, x);
      if (exact && exact.row !== members[0].rowOf(x)) exact = null;
      readOut();
    },
    // The exact values of the first member at a row.
    exact(row, values) {
      exact = { m: 0, row, values };
      readOut();
      tell();
    },
    rest: tell,
    hover(x) {
      over = x;
      readOut();
    },
    marked() {
      if (!chart) return;
      put(lines.a, page.marks.a);
      put(lines.b, page.marks.b);
      readOut();
    },
    toggled() {
      items.forEach((_, j) => legend.children[j].querySelector("button").setAttribute("aria-pressed", String(!isHidden(j))));
      if (box.hidden) { chart?.destroy(); chart = null; } else plot.draw();
    },
    // Draw what is predicted from the row on: `[steps][elements]`.
    ahead(chunk) {
      if (!chart || states || !ahead) return;
      const scale = devicePixelRatio || 1, { width, height } = chart.over.getBoundingClientRect();
      ahead.width = Math.round(width * scale);
      ahead.height = Math.round(height * scale);
      if (!chunk) return;
      const context = ahead.getContext("2d");
      context.scale(scale, scale);
      context.lineWidth = 2;
      for (let j = 0; j < Math.min(count(), chunk[0].length); j++) {
        if (isHidden(j)) continue;
        context.strokeStyle = context.fillStyle = colorOf(j);
        context.beginPath();
        chunk.forEach((values, i) => context.lineTo(chart.valToPos(head + i, "x"), chart.valToPos(values[j] - base, "y")));
        context.stroke();
        context.beginPath();
        context.arc(chart.valToPos(head + chunk.length - 1, "x"), chart.valToPos(chunk[chunk.length - 1][j] - base, "y"), 3, 0, 2 * Math.PI);
        context.fill();
      }
    },
    drawn: () => chart !== null,
    canvas: () => chart?.ctx.canvas,
    legend: () => Array.from({ length: count() }, (_, j) => ({ color: states ? null : colorOf(j), text: `${nameOf(j)} ${members.map((member, m) => words(m, j, member.rowOf(head))).join(" / ")}` })).filter((_, j) => !isHidden(j)),
    heads: () => (lines.head?.hidden ? null : chart.valToPos(head, "x", true)),
    constant() {
      const each = data[0];
      if (members.length > 1 || !each || each.rows < members[0].steps || each.n < 2 || !each.values.every((value, i) => value === each.values[i % each.k])) return null;
      return Array.from(each.values.subarray(0, each.k));
    },
    thinned: () => data.some((each) => each && thin(each)),
    leave() { asked++; chart?.destroy(); chart = null; },
  };
  return plot;
}

const room = (value) => Math.max(1, Math.abs(value) / 20); // around a curve of one value
const tick = (value) => (Math.abs(value) >= 1e5 ? value.toExponential(Number.isInteger(value / 10 ** Math.floor(Math.log10(Math.abs(value)))) ? 0 : 1) : short(value));

// Places to mark with points: all where they are far apart, otherwise those without neighbours.
function alone(y, width) {
  const all = y.length < width / 24;
  const found = [];
  for (let i = 0; i < y.length; i++) if (y[i] != null && (all || (y[i - 1] == null && y[i + 1] == null))) found.push(i);
  return found;
}

function stateColor(value) {
  return Number.isFinite(value) ? BANDS[((Math.round(value) % BANDS.length) + BANDS.length) % BANDS.length] : "transparent";
}
