// Review: episodes one by one, in the order of a queue, with one key each for keep and leave out, and undo.
//
// A queue is what the table of episodes shows, for example the most novel ones first or a finding. Its order is fixed when it
// begins, so that marks do not move it. What was looked at has the tag `reviewed`.

import { json, element, counted, address } from "./net.js";
import { saveMarks } from "./unsent.js";
import { copied, saved } from "./share.js";
import { offerInPalette } from "./palette.js";

const REVIEWED = "reviewed";
const MOST = 1000; // episodes of a queue
const done = []; // of this tab, the latest last: {hash, path, before, after}

export async function reviewPage(page, name, options) {
  const api = `api/${encodeURIComponent(name)}`;
  const [info, report, { known }] = await Promise.all([json(`${api}/info`), json(`${api}/check`), json(`${api}/episodes`, { limit: 0 })]);
  const has = (column) => known.some((each) => each.name === column);
  const fresh = element("input", { type: "checkbox", checked: true });
  const seed = element("input", { type: "number", min: "0", value: "1", "aria-label": "seed" });
  const problem = element("p", { class: "error", role: "alert" });
  let left = false;

  async function start(query) {
    const where = [query.where, fresh.checked ? `not '${REVIEWED}' in tags` : ""].filter(Boolean).map((part, i, all) => (all.length > 1 && !i ? `(${part})` : part)).join(" and ");
    const queue = String(new URLSearchParams(Object.entries({ ...query, where }).filter(([, value]) => value !== "" && value !== undefined)));
    try {
      const listed = await episodesOf(api, queue, true);
      if (left) return;
      if (listed.length) location.hash = address(`#/${encodeURIComponent(name)}/${listed[0]}`, { queue });
      else problem.textContent = fresh.checked ? "no episode of this queue is left to review" : "this queue has no episodes";
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  const choice = (title, about, query, ...more) => element("li", {}, element("button", { onclick: () => start(query()) }, title), " ", ...more, element("span", { class: "dim" }, about));
  const asked = Object.fromEntries(["where", "sort", "descending", "finding"].map((key) => [key, options.get(key) || ""]));
  const findings = [...new Map(report.findings.filter((finding) => finding.episodes.length).map((finding) => [finding.name, finding])).values()];
  const writes = info.curation.path ? element("p", { class: "dim location" }, `marks are saved in ${info.curation.path}, each at once`) : element("p", { class: "error" }, info.curation.message);
  const progress = element("p", { id: "progress" });
  const results = element("div", {});
  page.replaceChildren(element("h1", {}, "Review"), writes, progress,
    element("div", { class: "panels whole" },
      element("section", { class: "panel" }, element("h2", {}, "Queues"), element("p", { class: "dim about" }, "a queue shows its episodes one by one"),
        element("label", {}, fresh, " only what nobody has reviewed"),
        element("ul", { class: "queues", id: "queues" },
          ...(Object.values(asked).some(Boolean) ? [choice("As in the table", ` ${asked.where || asked.finding || asked.sort}`, () => asked)] : []),
          ...findings.map((finding) => choice(finding.name, ` ${finding.level}: ${finding.message}`, () => ({ finding: finding.name }))),
          ...(has("novelty") ? [choice("Least like the others", "novelty, largest first", () => ({ sort: "novelty", descending: "1" }))] : []),
          ...(has("jerk") ? [choice("Jerkiest", "jerk, largest first", () => ({ sort: "jerk", descending: "1" }))] : []),
          ...(has("return") ? [choice("Lowest return", "smallest first", () => ({ sort: "return" }))] : []),
          choice("At random", "the same order for the same seed", () => ({ seed: seed.value || "0" }), seed, " "),
          choice("As stored", "all, one after the other", () => ({}))), problem),
      agreementPanel(api, name), results));

  async function summary() {
    const count = async (where) => (await json(`${api}/episodes`, { where, limit: 0 })).total;
    const selection = await json(`${api}/selection`);
    const reviewed = info.curation.path ? await count(`'${REVIEWED}' in tags`) : 0;
    if (left) return;
    const kept = selection.episodes.filter((episode) => !selection.excluded.includes(episode));
    progress.textContent = `${reviewed.toLocaleString("en")} of ${counted(info.episodes, "episode")} reviewed, ${selection.excluded.length.toLocaleString("en")} left out`;
    results.replaceChildren(element("section", { class: "panel share", id: "results" }, element("h2", {}, "Use it"),
      element("p", { class: "dim about" }, "without what is left out; the data stay as they are"), copied(selection.python), ...(selection.command ? [copied(selection.command)] : []),
      element("div", { class: "bar" }, saved(`${name}.kept.json`, kept, "Save what is kept"), saved(`${name}.split.json`, { kept, excluded: selection.excluded }, "as a split"), saved(`${name}.excluded.json`, selection.excluded, "as a difference"))));
  }

  offerInPalette(name, () => []);
  summary().catch((error) => { progress.textContent = error.message; });
  const waiting = report.state === "running" ? setTimeout(() => { if (!left) reviewPage(page, name, options); }, 1000) : 0; // findings come
  return () => { left = true; clearTimeout(waiting); };
}

// The episodes of a queue, in the order in which it began.
async function episodesOf(api, queue, again) {
  const key = `queue ${api} ${queue}`, kept = sessionStorage.getItem(key);
  if (kept && !again) return JSON.parse(kept);
  const { rows } = await json(`${api}/episodes`, { ...Object.fromEntries(new URLSearchParams(queue)), limit: MOST, column: "id" });
  const listed = rows.map(([episode]) => episode);
  sessionStorage.setItem(key, JSON.stringify(listed));
  return listed;
}

// The bar above an episode that is reviewed, and its keys.
export async function reviewBar(name, number, queue) {
  const api = `api/${encodeURIComponent(name)}`, place = `#/${encodeURIComponent(name)}`;
  const listed = await episodesOf(api, queue, false);
  const at = listed.indexOf(number);
  const said = element("span", { role: "status", class: "dim", id: "decided" });
  const go = (step) => {
    const next = listed[at + step];
    location.hash = next === undefined ? `${place}/review` : address(`${place}/${next}`, { queue });
  };

  async function decide(excluded) {
    const { marks, curation } = await json(`${api}/episode/${number}`);
    if (!curation.path) { said.textContent = curation.message; return; }
    const after = { ...marks, excluded, tags: [...new Set([...(marks.tags || []), REVIEWED])].sort() };
    const change = { path: address(`${api}/marks/${number}`, { file: curation.path }), before: marks, after, hash: location.hash };
    done.push(change);
    saveMarks(change.path, { before: marks, after }).catch((error) => { alertOf(error.message); });
    go(1);
  }

  function undo() {
    const last = done.pop();
    if (!last) { said.textContent = "nothing to undo"; return; }
    saveMarks(last.path, { before: last.after, after: last.before }).then(() => { location.hash = last.hash; dispatchEvent(new Event("focus")); }, (error) => alertOf(error.message));
  }

  const alertOf = (text) => { said.className = "error"; said.textContent = text; };
  const keys = { k: () => decide(false), d: () => decide(true), u: undo, n: () => go(1), p: () => { if (at > 0) go(-1); } };
  const pressed = (event) => {
    if (!bar.isConnected) return; // of an episode that was left while it was loading: a key decides on what is shown
    const act = keys[event.key], typing = event.target.matches?.("input:not([type=range]), select, textarea");
    if (!act || event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    act();
  };
  addEventListener("keydown", pressed, { capture: true });
  const button = (key, text, attributes = {}) => element("button", { ...attributes, onclick: keys[key] }, element("kbd", {}, key), ` ${text}`);
  const bar = element("div", { class: "bar review", id: "reviewing", role: "group", "aria-label": "review" },
    element("a", { href: `${place}/review` }, "Review"), element("b", {}, at < 0 ? "not in the queue" : `${(at + 1).toLocaleString("en")} of ${listed.length.toLocaleString("en")}`),
    button("k", "keep"), button("d", "leave out"), button("n", "later"), button("p", "back", { disabled: at <= 0 }), button("u", "undo", { disabled: !done.length }), said);
  return { bar, leave: () => removeEventListener("keydown", pressed, { capture: true }) };
}

// How far two people agree. The other person's file is read here and compared by the server; nothing is changed.
function agreementPanel(api, name) {
  const result = element("div", { "aria-live": "polite", id: "agreement" });
  const file = element("input", { type: "file", accept: ".json", "aria-label": "file of marks of another person", onchange: async () => {
    try {
      const body = await file.files[0].text();
      const response = await fetch(`${api}/agreement`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
      const found = JSON.parse(await response.text());
      if (!response.ok) throw new Error(found.error);
      const share = found.both ? `${counted(found.same, "episode")} of ${found.both.toLocaleString("en")} decided alike (${Math.round((100 * found.same) / found.both)} %)` : "no episode was decided by both";
      result.replaceChildren(element("p", {}, share, found.kappa === null ? "" : `; Cohen's kappa ${found.kappa.toFixed(2)}: 1 is always alike, 0 is by chance`),
        ...(found.rated ? [element("p", {}, `ratings of ${counted(found.rated, "episode")} differ by ${Number(found.distance.toPrecision(3))} on average`)] : []),
        ...(found.different.length ? [element("p", {}, "decided differently: ", ...found.different.flatMap((episode) => [element("a", { href: `#/${encodeURIComponent(name)}/${episode}` }, String(episode)), " "]))] : []));
    } catch (error) {
      result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
  } });
  return element("section", { class: "panel" }, element("h2", {}, "Agreement"), element("p", { class: "dim about" }, "compare these marks with the file of another person; `penstock merge-curations` joins both"), file, result);
}
