// The episodes of a dataset as a table: filtered in the language of Python's `filter`, sorted, with a histogram atop each
// column that filters. The server sorts and counts, so 10^6 episodes are as quick as ten.

import { json, element, short, counted, address, picture } from "./net.js";
import { histogram } from "./histogram.js";
import { completed, conditionOffers } from "./complete.js";
import { thumbnail } from "./thumbnails.js";

const PAGE = 50;
const MARKS = /^(findings|rating|excluded|tags\/.*|spans\/.*)$/; // said of an episode in the grid if it has some
// Orders that put first what is worth a look: a column, whether the largest comes first, and what that means.
export const LOOKS = [["findings", "1", "most findings"], ["novelty", "1", "least like the others"], ["jerk", "1", "jerkiest"], ["stillness", "1", "stillest"],
  ["total_steps", "", "shortest"], ["total_steps", "1", "longest"], ["return", "", "lowest return"], ["return", "1", "highest return"]];

// The condition with other bounds of a column. `whole`: whether the upper bound belongs to it.
export function within(where, column, low, high, whole) {
  const bounds = new RegExp(`^${column.replace(/[^\w]/g, "\\$&")} (>=|<=|<|==) \\S+$`);
  const others = /\bor\b|\(/.test(where) ? [where && `(${where})`] : where.split(/ and /).filter((part) => !bounds.test(part.trim()));
  return [...others, `${column} >= ${low}`, `${column} ${whole ? "<=" : "<"} ${high}`].filter(Boolean).join(" and ");
}

export function episodesPanel(api, name, info, state, is, keep) {
  let known = [], shown = [], texts = {}, total = 0, offset = 0, asked = 0;
  const table = element("div", { class: "scroll", id: "episodes" });
  const count = element("span", { class: "dim", id: "count", role: "status" });
  const problem = element("span", { class: "error", role: "alert" });
  const range = element("span", { class: "dim", id: "shown" });
  const chips = element("span", { class: "chips" });
  const where = element("input", { class: "where", placeholder: "total_steps > 100 and return >= 0", value: state.where, "aria-label": "condition" });
  const offers = completed(where, (before) => conditionOffers(before, known, texts));
  where.addEventListener("keydown", (event) => { if (event.key === "Enter") { offers.hide(); apply(where.value); } });
  const looks = element("select", { id: "looks", "aria-label": "what comes first", onchange: () => {
    if (looks.value === "random") Object.assign(state, { sort: "", descending: "", seed: String(1 + Math.floor(Math.random() * 9999)) });
    else {
      const [by, descending] = looks.value ? LOOKS[Number(looks.value)] : ["", ""];
      Object.assign(state, { sort: by, descending, seed: "" });
    }
    offset = 0;
    refresh();
  } });
  const choices = element("div", { class: "choices" });
  const columns = element("details", { class: "menu" }, element("summary", {}, "Columns"), choices); // made once: a click on it ends where it began
  const ways = ["table", "grid"].map((way) => element("button", { onclick: () => { state.view = way === "table" ? "" : way; refresh(); } }, way === "table" ? "Table" : "Grid"));
  const turn = (step) => {
    offset = Math.max(0, Math.min(offset + step, Math.floor(Math.max(0, total - 1) / PAGE) * PAGE));
    refresh();
  };
  const earlier = element("button", { id: "previous", onclick: () => turn(-PAGE) }, "Previous");
  const later = element("button", { id: "next", onclick: () => turn(PAGE) }, "Next");
  const body = element("div", {},
    element("div", { class: "bar" }, element("div", { class: "field" }, where, offers.list), element("button", { id: "filter", onclick: () => apply(where.value) }, "Filter"),
      element("label", {}, "first ", looks), columns, element("span", { class: "ways", role: "group", "aria-label": "episodes as" }, ...ways)),
    element("div", { class: "bar" }, count, chips, problem), table, element("div", { class: "bar" }, earlier, later, range));

  function apply(condition) {
    state.where = condition;
    offset = 0;
    refresh();
  }

  function sort(column) {
    Object.assign(state, { descending: state.sort === column && !state.descending ? "1" : "", sort: column, seed: "" });
    offset = 0;
    refresh();
  }

  async function refresh() {
    const mine = ++asked;
    keep();
    const { where: condition, sort: by, descending, finding, seed, column } = state;
    try {
      const wanted = state.view === "grid" && column.length ? [...new Set([...column, "total_steps", by].filter(Boolean))] : column;
      const found = await json(`${api}/episodes`, { where: condition, sort: by, descending, finding, seed, column: wanted, offset, limit: PAGE });
      if (!is() || mine !== asked) return;
      if (document.activeElement !== where) where.value = condition;
      problem.textContent = "";
      [known, shown, total] = [found.known, found.columns, found.total];
      count.textContent = `${total.toLocaleString("en")} of ${counted(info.episodes, "episode")}`;
      range.textContent = total ? `${(offset + 1).toLocaleString("en")} to ${(offset + found.rows.length).toLocaleString("en")}` : "";
      earlier.disabled = !offset;
      later.disabled = offset + PAGE >= total;
      drawChoices();
      const cells = state.view === "grid" ? drawGrid(found) : drawTable(found);
      const counts = await json(`${api}/histograms`, { where: condition, finding, column: shown.filter((each) => each !== "id") });
      if (!is() || mine !== asked) return;
      for (const [each, counted_] of Object.entries(counts)) {
        if (counted_.texts) texts[each] = counted_.texts;
        cells[each]?.replaceChildren(histogram(counted_, each, pickOf(each, counted_)));
      }
    } catch (error) {
      if (mine === asked) problem.textContent = error.message;
    }
  }

  function pickOf(column, found) {
    const { condition } = known.find((each) => each.name === column);
    if (!condition || condition.includes(" ")) return undefined;
    if (found.texts) return (text) => apply([...(state.where ? [state.where] : []), `${column} == '${text}'`].join(" and "));
    return (low, high, whole) => apply(within(state.where, column, low, high, whole));
  }

  function drawChoices() {
    const offered = LOOKS.map((look, i) => [look, String(i)]).filter(([[column]]) => known.some((each) => each.name === column));
    ways.forEach((way, i) => way.setAttribute("aria-pressed", String((state.view === "grid") === (i === 1))));
    looks.replaceChildren(element("option", { value: "" }, "as stored"), ...offered.map(([[, , text], i]) => element("option", { value: i }, text)),
      element("option", { value: "random" }, state.seed ? `at random, seed ${state.seed}` : "at random"));
    looks.value = state.seed ? "random" : (offered.find(([[column, down]]) => column === state.sort && down === state.descending) || ["", ""])[1];
    const chip = (text, clear) => element("button", { class: "chip", onclick: () => { clear(); offset = 0; refresh(); } }, `${text} ×`);
    chips.replaceChildren(...(state.where ? [chip(state.where, () => { state.where = ""; })] : []), ...(state.finding ? [chip(`finding ${state.finding}`, () => { state.finding = ""; })] : []));
    choices.replaceChildren(...known.map(({ name: column, about }) =>
      element("label", {}, element("input", { type: "checkbox", checked: shown.includes(column), disabled: column === "id", onchange: (event) => choose(column, event.target.checked) }),
        " ", element("b", {}, column), " ", element("span", { class: "dim" }, about))),
      element("button", { onclick: () => { state.column = []; refresh(); } }, "Usual columns"));
  }

  function choose(column, on) {
    state.column = on ? [...shown, column] : shown.filter((each) => each !== column);
    refresh();
  }

  // The usual columns are there whatever is shown, for the length says which picture is in the middle.
  function drawGrid(found) {
    const place = Object.fromEntries(found.columns.map((column, i) => [column, i]));
    const said = (row) => found.columns.filter((column) => column === "return" || column === state.sort || (MARKS.test(column) && row[place[column]] > 0))
      .filter((column) => column !== "id" && column !== "total_steps").map((column) => element("li", { class: column === "findings" ? "warning" : "" }, `${column} ${short(row[place[column]]) || "none"}`));
    const cards = found.rows.map((row) => element("li", { class: "card" }, element("a", { href: `#/${encodeURIComponent(name)}/${row[0]}`, "aria-label": `episode ${row[0]}` },
      thumbnail(api, info, row[0], row[place.total_steps])), element("ul", { class: "counts" }, element("li", {}, element("b", {}, String(row[0]))), element("li", {}, counted(row[place.total_steps], "step")), ...said(row))));
    table.replaceChildren(cards.length ? element("ul", { class: "grid", "aria-label": "episodes" }, ...cards) : nothing());
    return {};
  }

  const nothing = () => element("p", { class: "message" }, info.episodes ? "no episode meets the condition" : "no episodes");

  function drawTable(found) {
    const camera = info.cameras[0], cells = {};
    const heads = found.columns.map((column) => {
      const { about } = known.find((each) => each.name === column);
      const sorted = state.sort === column ? (state.descending ? "descending" : "ascending") : undefined;
      cells[column] = element("div", { class: "head-histogram" });
      return element("th", { class: "number", "aria-sort": sorted, title: about },
        element("button", { onclick: () => sort(column) }, column + (sorted ? (state.descending ? " ▾" : " ▴") : "")), cells[column]);
    });
    const rows = found.rows.map((row) => {
      const link = `#/${encodeURIComponent(name)}/${row[0]}`;
      const open = () => { location.hash = link; };
      const thumb = camera && element("td", {}, picture({ class: "thumb", src: address(`${api}/picture/${row[0]}/0`, { camera }) }));
      return element("tr", { class: "row", tabindex: "0", onclick: open, onkeydown: (event) => {
        if (event.key === "Enter") open();
        const other = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
        if (other) { event.preventDefault(); event.currentTarget[other]?.focus(); }
      } }, thumb, ...row.map((value, i) => element("td", { class: typeof value === "string" ? "" : "number" }, i ? short(value) : element("a", { href: link, "aria-label": `episode ${value}` }, short(value)))));
    });
    table.replaceChildren(found.rows.length ? element("table", {}, element("thead", {}, element("tr", {}, camera && element("th", {}, element("span", { class: "dim" }, "first picture")), ...heads)), element("tbody", {}, ...rows))
      : nothing());
    return cells;
  }

  return { body, refresh, sort, known: () => known };
}
