// Pages by the part of the address behind "#": "#/" lists datasets, "#/NAME" is a dataset, "#/NAME/12?row=40" an episode.

import { json, element } from "./net.js";
import { datasetPage } from "./dataset.js";
import { episodePage } from "./episode.js";

let leave = () => {};

async function show() {
  leave();
  leave = () => {};
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, number] = path.split("/").map(decodeURIComponent);
  const page = document.getElementById("page");
  const crumbs = document.getElementById("crumbs");
  crumbs.replaceChildren();
  try {
    if (!name) await datasets(page);
    else {
      crumbs.append(element("a", { href: `#/${encodeURIComponent(name)}` }, name));
      if (number !== undefined) crumbs.append(` / episode ${number}`);
      const options = new URLSearchParams(query || "");
      leave = number === undefined ? await datasetPage(page, name, options) : await episodePage(page, name, Number(number), options);
    }
    document.title = (name ? `${name}${number === undefined ? "" : ` ${number}`} - ` : "") + "penstock";
  } catch (error) {
    page.replaceChildren(element("p", { class: "message", role: "alert" }, error.message));
  }
}

async function datasets(page) {
  const listed = await json("api/datasets");
  if (listed.length === 1) {
    location.replace(`#/${encodeURIComponent(listed[0].name)}`);
    return;
  }
  const cards = listed.map((data) =>
    element("a", { class: "card", href: `#/${encodeURIComponent(data.name)}` },
      element("strong", {}, data.name),
      element("div", { class: "dim" }, `${data.format}, ${data.episodes.toLocaleString()} episodes, ${data.steps.toLocaleString()} steps`)));
  page.replaceChildren(element("h1", {}, "Datasets"), element("div", { class: "cards" }, ...cards));
}

addEventListener("hashchange", show);
show();
