// A dataset: what it is, what is wrong with it, and its episodes as a table that can be sorted and filtered.

import { json, element, short, address, remember } from "./net.js";
import { drawHistogram } from "./curves.js";

const PAGE = 50;
const LONG = 200; // characters of a value of the metadata
// Orders that put first what is worth a look: a column, whether the largest comes first, and what that means.
const LOOKS = [["findings", "1", "most findings"], ["novelty", "1", "least like the others"], ["jerk", "1", "jerkiest"], ["stillness", "1", "stillest"],
  ["total_steps", "", "shortest"], ["total_steps", "1", "longest"], ["return", "", "lowest return"], ["return", "1", "highest return"]];

export async function datasetPage(page, name, options) {
  const api = `api/${encodeURIComponent(name)}`;
  const info = await json(`${api}/info`);
  const state = {
    where: options.get("where") || "", sort: options.get("sort") || "", descending: options.get("descending") || "",
    offset: 0, column: "",
  };
  const findings = element("div", { class: "scroll" }, element("p", { class: "message", role: "status" }, "checking..."));
  const table = element("div", { class: "scroll", id: "episodes" });
  const count = element("span", { class: "dim", id: "count" });
  const problem = element("span", { class: "error", role: "alert" });
  const shown = element("span", { class: "dim", id: "shown" });
  const histogram = element("canvas", { class: "histogram", role: "img", "aria-label": "histogram" });
  const chosen = element("select", { "aria-label": "column of the histogram", onchange: () => { state.column = chosen.value; distribution(); } });
  const looks = element("select", { id: "looks", "aria-label": "what comes first", onchange: () => {
    const [sort, descending] = looks.value ? LOOKS[Number(looks.value)] : ["", ""];
    Object.assign(state, { sort, descending, offset: 0 });
    refresh();
  } });
  const where = element("input", {
    class: "where", placeholder: "total_steps > 100 and return >= 0", value: state.where, "aria-label": "condition",
    spellcheck: "false", onkeydown: (event) => { if (event.key === "Enter") { state.where = where.value; state.offset = 0; refresh(); } },
  });
  page.replaceChildren(
    element("h1", {}, info.name),
    element("div", { class: "dim location" }, info.location),
    element("ul", { class: "counts" },
      element("li", {}, "format ", element("b", {}, info.format)), counted("episodes", info.episodes.toLocaleString()),
      counted("steps", info.steps.toLocaleString()), counted("columns", info.columns.length)),
    element("h2", {}, "Findings"), findings,
    element("h2", {}, "Episodes"),
    element("div", { class: "bar" }, where, element("button", { onclick: () => { state.where = where.value; state.offset = 0; refresh(); } }, "Filter"), count, problem),
    element("div", { class: "bar" }, element("label", {}, "first ", looks), element("label", {}, "histogram of ", chosen)), histogram, table,
    element("div", { class: "bar" },
      element("button", { id: "previous", onclick: () => turn(-PAGE) }, "Previous"),
      element("button", { id: "next", onclick: () => turn(PAGE) }, "Next"), shown),
    element("h2", {}, "Columns"), columnTable(info.columns), figures(api, info.episodes),
    element("h2", {}, "Spaces and metadata"), facts({ observation_space: info.spaces.observations, action_space: info.spaces.actions, ...info.metadata }));

  let total = 0, measured = false; // measured: the table has the columns of the check
  let left = false;
  let asked = 0, drawn = 0; // requests for episodes and histograms; an answer that a later request overtook is not shown
  const turn = (step) => {
    state.offset = Math.max(0, Math.min(state.offset + step, Math.floor(Math.max(0, total - 1) / PAGE) * PAGE));
    refresh();
  };

  async function refresh() {
    const mine = ++asked;
    remember(`#/${encodeURIComponent(name)}`, { where: state.where, sort: state.sort, descending: state.descending });
    try {
      const found = await json(`${api}/episodes`, { ...state, limit: PAGE, column: "" });
      if (left || mine !== asked) return;
      problem.textContent = "";
      total = found.total;
      measured = found.measured;
      count.textContent = `${found.total.toLocaleString()} of ${info.episodes.toLocaleString()} episodes`;
      shown.textContent = found.total ? `${(state.offset + 1).toLocaleString()} to ${(state.offset + found.rows.length).toLocaleString()}` : "";
      const offered = LOOKS.map((look, i) => [look, String(i)]).filter(([[column]]) => found.columns.includes(column));
      looks.replaceChildren(element("option", { value: "" }, "as stored"), ...offered.map(([[, , text], i]) => element("option", { value: i }, text)));
      looks.value = (offered.find(([[column, down]]) => column === state.sort && down === state.descending) || ["", ""])[1];
      table.replaceChildren(episodeTable(found));
      if (chosen.options.length !== found.columns.length - 1) {
        chosen.replaceChildren(...found.columns.slice(1).map((column) => element("option", {}, column)));
        state.column = state.column || (found.columns.includes("return") ? "return" : "total_steps");
        chosen.value = state.column;
      }
      await distribution();
    } catch (error) {
      if (mine === asked) problem.textContent = error.message;
    }
  }

  async function distribution() {
    const mine = ++drawn;
    if (!state.column) return;
    const found = await json(`${api}/histogram`, { column: state.column, where: state.where });
    if (!left && mine === drawn) drawHistogram(histogram, found);
  }

  function episodeTable(found) {
    const camera = info.cameras[0];
    const heads = found.columns.map((column) =>
      element("th", { class: "number", "aria-sort": state.sort === column ? (state.descending ? "descending" : "ascending") : undefined },
        element("button", { onclick: () => {
          state.descending = state.sort === column && !state.descending ? "1" : "";
          state.sort = column;
          state.offset = 0;
          refresh();
        } }, column + (state.sort === column ? (state.descending ? " ▾" : " ▴") : ""))));
    const rows = found.rows.map((row) => {
      const open = () => { location.hash = `#/${encodeURIComponent(name)}/${row[0]}`; };
      const thumb = camera && element("td", {}, element("img", { class: "thumb", loading: "lazy", alt: "", src: address(`${api}/picture/${row[0]}/0`, { camera }) }));
      return element("tr", { class: "row", tabindex: "0", onclick: open, onkeydown: (event) => { if (event.key === "Enter") open(); } },
        thumb, ...row.map((value) => element("td", { class: "number" }, short(value))));
    });
    return element("table", {}, element("thead", {}, element("tr", {}, camera && element("th", {}, ""), ...heads)), element("tbody", {}, ...rows));
  }

  async function check() {
    const report = await json(`${api}/check`);
    if (left) return;
    if (report.state === "running") {
      findings.firstChild.textContent = `checking... ${Math.floor(100 * report.progress)} %`;
      setTimeout(check, 300);
      return;
    }
    findings.replaceChildren(findingTable(name, report));
    if (!measured) refresh();
  }

  await refresh();
  check();
  const resized = () => distribution();
  addEventListener("resize", resized);
  addEventListener("focus", refresh); // marks of others, and of another window
  return () => { left = true; removeEventListener("resize", resized); removeEventListener("focus", refresh); };
}

function counted(what, n) {
  return element("li", {}, element("b", {}, String(n)), ` ${what}`);
}

function columnTable(columns) {
  const rows = columns.map((column) => element("tr", {}, ...[column.path, column.kind, column.dtype, JSON.stringify(column.shape), column.align].map((cell) => element("td", {}, cell))));
  const heads = ["column", "kind", "dtype", "shape of a row", "rows"].map((head) => element("th", {}, head));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
}

// Figures are read when they are asked for: they need values.
function figures(api, episodes) {
  const place = element("div", { class: "scroll", id: "figures" });
  const button = element("button", { id: "show-figures", onclick: async () => {
    button.disabled = true;
    place.replaceChildren(element("p", { class: "message", role: "status" }, "reading..."));
    try {
      figureTable(place, await json(`${api}/figures`), episodes);
    } catch (error) {
      place.replaceChildren(element("p", { class: "message error" }, error.message));
      button.disabled = false;
    }
  } }, "Means, extremes and histograms");
  return element("div", {}, element("div", { class: "bar" }, button), place);
}

function figureTable(place, found, episodes) {
  if (!found.columns.length) {
    place.replaceChildren(element("p", { class: "message" }, "no columns of numbers"));
    return;
  }
  const canvases = found.columns.map((column) => element("canvas", { class: "small-histogram", role: "img", "aria-label": `histogram of ${column.name}` }));
  const rows = found.columns.map((column, i) => element("tr", {}, element("td", {}, column.name), element("td", {}, canvases[i]),
    ...["mean", "std", "min", "max"].map((name) => element("td", { class: "number" }, short(column[name])))));
  const heads = [...["number", "histogram"].map((head) => element("th", {}, head)), ...["mean", "deviation", "least", "greatest"].map((head) => element("th", { class: "number" }, head))];
  const note = found.episodes < episodes ? [element("p", { class: "dim" }, `of ${found.episodes.toLocaleString()} of ${episodes.toLocaleString()} episodes, spread evenly`)] : [];
  place.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)), ...note);
  found.columns.forEach((column, i) => drawHistogram(canvases[i], column));
}

function facts(entries) {
  const rows = Object.entries(entries).filter(([, value]) => value).map(([key, value]) => element("tr", {}, element("th", {}, key), element("td", { class: "wide" }, folded(value))));
  return element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows)));
}

// Long text opens by a click.
function folded(text) {
  return text.length <= LONG ? text : element("details", {}, element("summary", {}, `${text.slice(0, LONG - 40)}...`), text);
}

function findingTable(name, report) {
  if (report.state === "failed") return element("p", { class: "message error" }, report.message);
  if (!report.findings.length) return element("p", { class: "message" }, "no findings");
  const rows = report.findings.map((finding) => element("tr", {},
    element("td", {}, element("span", { class: `chip ${finding.level}` }, finding.level)),
    element("td", {}, finding.name),
    element("td", { class: "wide" }, finding.message),
    element("td", { class: "wide" }, ...finding.episodes.slice(0, 8).flatMap((episode, i) =>
      [element("a", { href: `#/${encodeURIComponent(name)}/${episode}?row=${finding.rows[i] || 0}` }, String(episode)), " "]))));
  const heads = ["", "finding", "what", "episodes"].map((head) => element("th", {}, head));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}
