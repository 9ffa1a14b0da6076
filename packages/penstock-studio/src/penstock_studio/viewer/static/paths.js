// The path of a position over an episode: in the plane as it is, in space seen from a side that a drag turns.

import { arrays, element, address, short } from "./net.js";
import { prepared } from "./curves.js";

export function pathPanel(api, number, column, facts, page) {
  const canvas = element("canvas", { class: "path view", role: "img", "aria-label": `path of ${column}` });
  const caption = element("figcaption", {}, column, facts.unit ? ` [${facts.unit}]` : "", facts.path.length > 2 ? ", drag to turn" : "",
    element("button", { class: "plain", title: "save a picture of this path", "aria-label": `picture of ${column}`, onclick: () => page.save({ canvas: () => canvas, title: column }) }, "⤓"));
  const figure = element("figure", { class: "path" }, canvas, caption);
  const names = facts.path.map((j) => facts.names[j] ?? "xyz"[j] ?? String(j));
  let points = null, count = 0, current = 0, turned = 0.7, tilted = 0.5, left = false;

  arrays(address(`${api}/path/${number}`, { column })).then(({ values, shape }) => {
    if (left) return;
    points = values;
    count = shape[0];
    draw();
  }, (error) => { figure.replaceChildren(element("p", { class: "message error" }, error.message)); });

  const width = facts.path.length + 1;

  // Places on a plane: of three coordinates, as they are seen from the side.
  function flat(i) {
    const [x, y, z] = [1, 2, 3].map((side) => points[i * width + side] ?? 0);
    if (width === 3) return [x, y];
    const across = x * Math.cos(turned) - y * Math.sin(turned), away = x * Math.sin(turned) + y * Math.cos(turned);
    return [across, away * Math.sin(tilted) + z * Math.cos(tilted)];
  }

  function draw() {
    if (!points || !canvas.isConnected) return;
    const { context, width: wide, height: high } = prepared(canvas);
    const style = getComputedStyle(canvas), places = Array.from({ length: count }, (_, i) => flat(i));
    const known = places.filter((place) => place.every(Number.isFinite));
    if (!known.length) return;
    const low = [0, 1].map((side) => known.reduce((least, place) => Math.min(least, place[side]), Infinity));
    const top = [0, 1].map((side) => known.reduce((most, place) => Math.max(most, place[side]), -Infinity));
    const scale = Math.min((wide - 40) / Math.max(top[0] - low[0], 1e-9), (high - 40) / Math.max(top[1] - low[1], 1e-9));
    const at = ([x, y]) => [wide / 2 + (x - (low[0] + top[0]) / 2) * scale, high / 2 - (y - (low[1] + top[1]) / 2) * scale];
    let last = 0;
    while (last + 1 < count && points[(last + 1) * width] <= current) last++;
    context.lineJoin = "round";
    for (const [from, to, color, thick] of [[0, count - 1, "--line", 2], [0, last, "--accent", 2]]) {
      context.strokeStyle = style.getPropertyValue(color);
      context.lineWidth = thick;
      context.beginPath();
      let open = false;
      for (let i = from; i <= to; i++) {
        if (!places[i].every(Number.isFinite)) { open = false; continue; }
        const place = at(places[i]);
        if (open) context.lineTo(...place); else context.moveTo(...place);
        open = true;
      }
      context.stroke();
    }
    const here = places[last];
    if (here.every(Number.isFinite)) {
      context.fillStyle = style.getPropertyValue("--accent");
      context.beginPath();
      context.arc(...at(here), 5, 0, 2 * Math.PI);
      context.fill();
    }
    context.fillStyle = style.getPropertyValue("--dim");
    context.font = "11px system-ui, sans-serif";
    const said = names.map((name, side) => `${name} ${short(points[last * width + side + 1])}`).join("  ");
    context.fillText(said, 8, high - 8);
    canvas.dataset.row = String(current);
  }

  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    if (!event.buttons || width === 3) return;
    turned += event.movementX / 100;
    tilted = Math.min(Math.PI / 2, Math.max(0, tilted + event.movementY / 100));
    draw();
  });

  return {
    figure,
    show(row) { current = row; draw(); },
    redraw: draw,
    leave() { left = true; },
  };
}
