// What is wrong with a dataset: findings of the check by harm, and what its reader left out.

import { json, element, counted } from "./net.js";

const HARM = ["error", "warning", "note"];
const SHOWN = 6; // episodes of a finding that are linked

export function findingsPanel(api, name, is, pick) {
  const said = element("p", { class: "dim about", role: "status" }, "checking...");
  const bar = element("progress", { max: "1", value: "0", "aria-label": "progress of the check" });
  const list = element("ul", { class: "found" });
  const body = element("section", { class: "panel", id: "findings" }, element("h2", {}, "Findings"), said, bar, list);
  let names = [];

  async function check(done) {
    const report = await json(`${api}/check`);
    if (!is()) return;
    if (report.state === "running") {
      bar.value = report.progress;
      said.textContent = `checking... ${Math.floor(100 * report.progress)} %`;
      setTimeout(() => check(done), 300);
      return;
    }
    bar.remove();
    said.removeAttribute("role");
    if (report.state === "failed") {
      said.className = "error";
      said.textContent = report.message;
      return;
    }
    const found = report.findings.filter((finding) => !finding.left_out);
    names = [...new Set(found.filter((finding) => finding.episodes.length).map((finding) => finding.name))];
    said.textContent = found.length ? summary(found) : "nothing is wrong, as far as the check can see";
    list.replaceChildren(...HARM.flatMap((level) => found.filter((finding) => finding.level === level)).map((finding) => line(name, finding, pick)));
    done();
  }

  return { body, check, names: () => names };
}

function summary(found) {
  const counts = HARM.map((level) => [level, found.filter((finding) => finding.level === level).length]);
  return counts.filter(([, number]) => number).map(([level, number]) => counted(number, level)).join(", ");
}

function line(name, finding, pick) {
  const links = finding.episodes.slice(0, SHOWN).flatMap((episode, i) =>
    [element("a", { href: `#/${encodeURIComponent(name)}/${episode}?row=${finding.rows[i] || 0}`, "aria-label": `episode ${episode}` }, String(episode)), " "]);
  return element("li", {},
    element("span", { class: `chip ${finding.level}` }, finding.level), " ", element("b", {}, finding.name), ` ${finding.message}`,
    links.length ? element("div", {}, "look at ", ...links, element("button", { class: "link", onclick: () => pick(finding.name) }, "list them")) : undefined,
    element("details", {}, element("summary", {}, "what it means"), element("p", {}, finding.meaning), element("p", {}, `What helps: ${finding.remedy}`)));
}

// The account of the reader: what is there and not used.
export function leftOutPanel(found) {
  const more = found.left_out_entries - found.left_out.length;
  return element("section", { class: "panel", id: "left-out" }, element("h2", {}, "Left out"),
    element("p", { class: "dim about" }, "what lies there and is not used"),
    element("ul", { class: "found" }, ...found.left_out.map((entry) => element("li", {},
      element("span", { class: `chip ${entry.level}` }, entry.level), " ", element("b", {}, entry.where), entry.count > 1 ? ` and ${(entry.count - 1).toLocaleString("en")} more` : "",
      ` (${entry.thing}): ${entry.message}`))), ...(more > 0 ? [element("p", { class: "dim" }, `and ${more.toLocaleString("en")} more, which penstock check lists`)] : []));
}
