// Episodes side by side on one axis: which ones, and which of their rows are next to each other.
//
// "with=2,clean:1" in the address names episodes of this or of another dataset. They are aligned by "step", by "time",
// or at an event: "first:COLUMN" is the first row where a column changes, "last:COLUMN" the last one.

import { element, address } from "./net.js";

export function parseEpisodes(text, name) {
  return (text || "").split(",").filter(Boolean).map((part) => {
    const cut = part.lastIndexOf(":");
    return { name: cut < 0 ? name : part.slice(0, cut), number: Number(part.slice(cut + 1)) };
  });
}

// What a member of the plots needs: rows on the axis of the first episode.
export async function aligned(sides, how) {
  const [kind, column] = [how.split(":", 1)[0], how.slice(how.indexOf(":") + 1)];
  const events = kind === "first" || kind === "last" ? await Promise.all(sides.map((side) => side.changes(column))) : sides.map(() => null);
  return sides.map((side, i) => {
    const zero = events[i]?.[kind] ?? 0, origin = events[0]?.[kind] ?? 0;
    const step = kind === "time" ? sides[0].info.rate / side.info.rate : 1; // rows of the first for a row of this
    return {
      missing: events[i] !== null && events[i][kind] === null,
      toX: (row) => origin + (row - zero) * step,
      rowOf: (x, whole = true) => (whole ? Math.round(zero + (x - origin) / step) : zero + (x - origin) / step),
      difference: { first_at: origin, other_at: zero, step },
    };
  });
}

export function compareForm(place, state, columns, query) {
  const given = { with: state.with, align: state.align, diff: state.diff ? "1" : null };
  const go = (change) => { location.hash = address(place, { ...query(), ...given, ...change }); };
  const events = columns.flatMap((column) => [[`first:${column}`, `first change of ${column}`], [`last:${column}`, `last change of ${column}`]]);
  const align = element("select", { id: "align", "aria-label": "align by", onchange: () => go({ align: align.value === "step" ? null : align.value }) },
    ...[["step", "step"], ["time", "time"], ...events].map(([value, text]) => element("option", { value, selected: value === state.align }, text)));
  const which = element("input", { id: "with", "aria-label": "episodes to compare", placeholder: "2, or other:1", value: state.with ?? "", size: "12", autocomplete: "off", onchange: () => go({ with: which.value.replaceAll(" ", "") }) });
  return element("div", { class: "bar compare" }, element("label", {}, "Compare with ", which),
    ...(state.with ? [element("label", {}, "aligned by ", align),
      element("label", {}, element("input", { type: "checkbox", id: "diff", checked: state.diff, onchange: (event) => go({ diff: event.target.checked ? "1" : null }) }), " difference"),
      element("button", { onclick: () => go({ with: null, align: null, diff: null }) }, "End comparison")] : []));
}
