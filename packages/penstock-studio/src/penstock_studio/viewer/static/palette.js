// The palette: everything that can be reached by a name. Ctrl K, or the button in the head, opens it on every page.

import { json, element } from "./net.js";
import { completed } from "./complete.js";

const MOST = 12;
let ofPage = () => []; // what the page that is shown offers: [{text, about, act}]
let current = ""; // name of the dataset that is shown

export function offerInPalette(name, offers) {
  current = name;
  ofPage = offers;
}

export function palette(pages) {
  let datasets = [];
  const input = element("input", { "aria-label": "go to", placeholder: "page, column, finding or number of an episode" });
  const dialog = element("dialog", { class: "palette", "aria-label": "go to" });
  const go = (hash) => () => { location.hash = hash; };
  const offers = completed(input, (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const number = /^\s*\d+\s*$/.test(text) && current ? [{ text: `episode ${Number(text)}`, about: current, act: go(`#/${encodeURIComponent(current)}/${Number(text)}`) }] : [];
    const listed = [...ofPage(), ...datasets.map(({ name, episodes }) => ({ text: name, about: `dataset, ${episodes.toLocaleString("en")} episodes`, act: go(`#/${encodeURIComponent(name)}`) })),
      { text: "Datasets", about: "page", act: go("#/") },
      ...(pages.plan ? [{ text: "Plan", about: "what the loader will serve", act: go("#plan") }] : []),
      ...(pages.live ? [{ text: "Live", about: "the running loader", act: go("#live") }] : [])];
    const fits = ({ text: name, about }) => words.every((word) => `${name} ${about}`.toLowerCase().includes(word));
    return [...number, ...listed.filter(fits)].slice(0, MOST).map((each) => ({ ...each, act: () => { dialog.close(); each.act(); } }));
  }, { first: true, label: "places" });
  dialog.append(input, offers.list, element("p", { class: "dim" }, element("kbd", {}, "↑"), " ", element("kbd", {}, "↓"), " choose, ", element("kbd", {}, "Enter"), " go, ", element("kbd", {}, "Esc"), " close"));
  dialog.addEventListener("keydown", (event) => { if (event.key !== "Escape") event.stopPropagation(); }); // not for the page below
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);

  async function open() {
    if (dialog.open) return;
    input.value = "";
    dialog.showModal();
    input.focus();
    datasets = await json("api/datasets");
    if (dialog.open) offers.show();
  }

  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    open();
  });
  return open;
}
