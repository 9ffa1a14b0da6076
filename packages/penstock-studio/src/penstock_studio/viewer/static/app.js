// Pages by the part of the address behind "#": "#/" lists datasets, "#/NAME" is a dataset, "#/NAME/12?row=40" an episode.
// "#plan" is what a loader will serve, "#ticket/DIGITS" one of its batches, "#live" a loader that runs.

import { json, element } from "./net.js";
import { datasetPage } from "./dataset.js";
import { episodePage } from "./episode.js";
import { planPage } from "./plan.js";
import { ticketPage } from "./ticket.js";
import { livePage } from "./live.js";
import { palette } from "./palette.js";
import { reviewPage, reviewBar } from "./review.js";
import { watchUnsent } from "./unsent.js";

const pages = json("pages");
let leave = () => {};
let turn = 0;

async function show() {
  leave();
  leave = () => {};
  const mine = ++turn;
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [first, ...rest] = path.split("/").map(decodeURIComponent);
  const options = new URLSearchParams(query || "");
  const page = element("div", {}, element("p", { class: "message reading", role: "status" }, "reading...")); // of its own, so that a page that was left and answers late is not seen
  const crumbs = document.getElementById("crumbs");
  crumbs.replaceChildren();
  document.getElementById("page").replaceChildren(page);
  try {
    await links(first);
    if (mine !== turn) return;
    const left = first === "plan" ? await titled("plan", () => planPage(page, options))
      : first === "ticket" ? await titled("batch", () => ticketPage(page, rest[0] || ""))
      : first === "live" ? await titled("live", () => livePage(page))
      : await ofDataset(page, crumbs, rest[0], rest[1], options);
    if (mine === turn) leave = left;
    else left(); // the user has gone on meanwhile
  } catch (error) {
    page.replaceChildren(element("p", { class: "message", role: "alert" }, error.message));
  }
}

function titled(title, make) {
  document.title = `${title} - penstock`;
  return make();
}

async function ofDataset(page, crumbs, name, number, options) {
  if (!name) return titled("datasets", () => datasets(page));
  crumbs.append(element("a", { href: `#/${encodeURIComponent(name)}` }, name));
  if (number === undefined) return titled(name, () => datasetPage(page, name, options));
  if (number === "review") {
    crumbs.append(" / review");
    return titled(`${name} review`, () => reviewPage(page, name, options));
  }
  crumbs.append(` / episode ${number}`);
  return titled(`${name} ${number}`, async () => {
    const queue = options.get("queue");
    if (queue === null) return episodePage(page, name, Number(number), options);
    const shown = element("div", { class: "reviewed" });
    const { bar, leave: end } = await reviewBar(name, Number(number), queue);
    page.replaceChildren(bar, shown);
    try {
      const left = await episodePage(shown, name, Number(number), options);
      return () => { end(); left(); };
    } catch (error) {
      end();
      throw error;
    }
  });
}

// Links to the pages, if there are others than those of datasets.
async function links(current) {
  const known = await pages;
  const nav = document.getElementById("pages");
  const listed = [["Datasets", "#/", known.datasets], ["Plan", "#plan", known.plan], ["Live", "#live", known.live]].filter(([, , there]) => there);
  nav.hidden = listed.length < 2;
  nav.replaceChildren(...listed.map(([text, href]) =>
    element("a", { href, "aria-current": href === `#${current || "/"}` ? "page" : undefined }, text)));
}

async function datasets(page) {
  const listed = await json("api/datasets");
  if (listed.length === 1) {
    location.replace(`#/${encodeURIComponent(listed[0].name)}`);
    return () => {};
  }
  const cards = listed.map((data) =>
    element("a", { class: "card", href: `#/${encodeURIComponent(data.name)}` },
      element("strong", {}, data.name),
      element("div", { class: "dim" }, `${data.format}, ${data.episodes.toLocaleString()} episodes, ${data.steps.toLocaleString()} steps`)));
  page.replaceChildren(element("h1", {}, "Datasets"), element("div", { class: "cards" }, ...cards));
  return () => {};
}

pages.then((known) => document.getElementById("palette").addEventListener("click", palette(known)));
watchUnsent((number) => {
  const banner = document.getElementById("unsent");
  banner.hidden = !number;
  banner.textContent = number ? `${number} ${number === 1 ? "change is" : "changes are"} on the way. They are kept in this browser until the server answers; if it has ended, start it again with --port ${location.port}.` : "";
});
addEventListener("hashchange", show);
show();
