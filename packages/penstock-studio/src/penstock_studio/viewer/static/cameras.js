// Pictures of a camera on a canvas. Chunks of consecutive pictures are fetched ahead of the movement; a picture that no
// chunk has yet is fetched alone, so that a jump shows something at once. At most KEPT bytes of pictures stay in memory.
//
// Small pictures are the rows to the last bit. Frames of stored video are decoded here, by their number. What is lossy
// says so below the picture, and a click on that asks for the exact rows.

import { element, address, short } from "./net.js";
import { decodedChunk } from "./video.js";

const KEPT = 48 << 20;
const REST = 150; // milliseconds
const KINDS = {
  png: ["exact", "the values of the data, without loss"],
  jpeg: ["JPEG", "lossy: a click shows the exact values"],
  video: ["video", "frames of the stored video, decoded by this browser, which may convert colours in its own way: a click shows the values of the data"],
};
const pools = new Set(); // of all cameras on the page
const bytesOf = () => [...pools].reduce((sum, pool) => sum + pool.bytes, 0);

// A panel is {figure, show(row), leave()}.
export function cameraPanel(api, number, camera, page) {
  const { path, chunk, rows: length, depth } = camera;
  let kind = page.exact.has(path) || camera.encoding === "png" ? "png" : camera.video ? "video" : "jpeg";
  const canvas = element("canvas", { role: "img", "aria-label": path, title: "click: larger", onclick: () => figure.classList.toggle("large") });
  const badge = element("button", { class: "plain badge", onclick: () => turn() });
  const value = element("output", { class: "pixel" });
  const figure = element("figure", { class: "camera" }, canvas, ...(depth ? [scale(depth)] : []), element("figcaption", {}, element("span", {}, path), badge, value,
    element("button", { class: "plain", title: "save this picture", "aria-label": `picture of ${path}`, onclick: () => page.save({ canvas: () => canvas, title: path, exact: true }) }, "⤓")));
  const chunks = new Map(); // number: {pictures, bytes}, in the order of their use
  const coming = new Map(); // number: promise
  const left = new AbortController();
  const pool = { bytes: 0 };
  let wanted = -1, shown = -1, direction = 1, drawing = false, jumped = false, resting = 0;
  pools.add(pool);

  // Says what the canvas shows: after a picture was drawn, never before.
  function name() {
    badge.textContent = depth ? `${kind === "png" ? "" : "JPEG of "}depth in colour` : KINDS[kind][0];
    badge.title = depth ? "colours stand for depth" : KINDS[kind][1];
    canvas.dataset.kind = kind;
  }

  // The exact values under the mouse: one request at a time, for the place where the mouse is by then.
  let place = null, asking = false;
  async function read() {
    if (asking) return;
    asking = true;
    while (place && !left.signal.aborted) {
      const [x, y] = place, row = shown;
      place = null;
      try {
        const { values, unit } = await (await fetched(address(`${api}/pixel/${number}/${row}`, { camera: path, x, y }))).json();
        if (over) value.textContent = `x ${x}, y ${y}: ${values.map(short).join(", ")}${unit ? ` ${unit}` : ""}`;
      } catch (error) {
        if (!left.signal.aborted) value.textContent = error.message;
      }
    }
    asking = false;
  }
  let over = false;
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    const scaled = Math.min(canvas.clientWidth / canvas.width, canvas.clientHeight / canvas.height); // the picture is at the left, in the middle
    const x = Math.floor(offsetX / scaled), y = Math.floor((offsetY - (canvas.clientHeight - canvas.height * scaled) / 2) / scaled);
    over = shown >= 0 && x >= 0 && y >= 0 && x < canvas.width && y < canvas.height;
    place = over ? [x, y] : null;
    if (over) read();
    else value.textContent = "";
  });
  canvas.addEventListener("pointerleave", () => { over = false; place = null; value.textContent = ""; });

  // Between the exact rows and what is quicker.
  function turn() {
    if (camera.encoding === "png") return;
    page.exact.has(path) ? page.exact.delete(path) : page.exact.add(path);
    change(page.exact.has(path) ? "png" : camera.video ? "video" : "jpeg");
    page.remember();
  }

  function change(now) {
    kind = now;
    forget(-1, true);
    coming.clear();
    shown = -1;
    draw();
  }

  async function fetched(place) {
    const response = await fetch(place, { signal: left.signal });
    if (!response.ok) throw new Error((await response.json()).error);
    return response;
  }

  function load(index) {
    if (coming.has(index)) return coming.get(index);
    const mine = kind;
    const promise = chunkOf(index, mine).then((found) => {
      if (left.signal.aborted || mine !== kind) for (const each of found.pictures) each.close?.();
      else keep(index, found);
    }).finally(() => { if (coming.get(index) === promise) coming.delete(index); });
    coming.set(index, promise);
    return promise;
  }

  async function chunkOf(index, mine) {
    if (mine === "video") {
      const buffer = await (await fetched(address(`${api}/packets/${number}/${index}`, { camera: path }))).arrayBuffer();
      const pictures = await decodedChunk(buffer, left.signal);
      if (pictures) return { pictures, bytes: pictures.reduce((sum, each) => sum + each.width * each.height * 4, 0) };
      camera.video = false; // no decoder: pictures of the server instead
      if (mine === kind) change("jpeg");
      return { pictures: [], bytes: 0 };
    }
    const buffer = await (await fetched(address(`${api}/chunk/${number}/${index}`, { camera: path, encoding: mine }))).arrayBuffer();
    const count = new DataView(buffer).getUint32(0, true);
    let place = 4 * (count + 1);
    const pictures = Array.from(new Uint32Array(buffer, 4, count), (size) => {
      place += size;
      return new Blob([new Uint8Array(buffer, place - size, size)], { type: `image/${mine}` });
    });
    return { pictures, bytes: buffer.byteLength };
  }

  function keep(index, found) {
    chunks.set(index, found);
    pool.bytes += found.bytes;
    forget(index, false);
  }

  // Those used longest ago go first; the one of `index` stays.
  function forget(index, all) {
    const most = kind === "video" ? KEPT * 4 : KEPT;
    for (const [oldest, each] of chunks) {
      if (!all && (oldest === index || (pool.bytes <= most && bytesOf() <= KEPT * 6))) break;
      chunks.delete(oldest);
      pool.bytes -= each.bytes;
      for (const picture of each.pictures) picture.close?.();
    }
  }

  function kept(row) {
    const index = Math.floor(row / chunk);
    const found = chunks.get(index);
    if (!found) return null;
    chunks.delete(index);
    chunks.set(index, found); // the one used last
    return found.pictures[row - index * chunk] || null;
  }

  async function picture(row) {
    const index = Math.floor(row / chunk);
    const known = kept(row);
    if (known) return known;
    if (coming.has(index) || kind === "video") {
      await load(index);
      return kept(row);
    }
    return (await fetched(address(`${api}/picture/${number}/${row}`, { camera: path, encoding: kind }))).blob();
  }

  async function draw() {
    if (drawing) return;
    drawing = true;
    try {
      while (wanted !== shown && !left.signal.aborted) {
        const row = wanted, mine = kind;
        const found = await picture(row);
        if (!found || mine !== kind) continue;
        const bitmap = found instanceof Blob ? await createImageBitmap(found, { colorSpaceConversion: "none", premultiplyAlpha: "none" }) : found;
        if (mine !== kind) { if (bitmap !== found) bitmap.close(); continue; } // changed meanwhile
        if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
          canvas.width = bitmap.width;
          canvas.height = bitmap.height;
          canvas.classList.toggle("small", bitmap.width < 160);
        }
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        if (bitmap !== found) bitmap.close();
        shown = row;
        name();
        canvas.dataset.row = String(row);
        ahead();
      }
    } catch (error) {
      if (!left.signal.aborted) canvas.replaceWith(element("p", { class: "message error" }, error.message));
    } finally {
      drawing = false;
    }
  }

  // The chunk of the picture, then the next one in the direction of the movement; one request at a time. While the row jumps,
  // chunks would only delay the pictures that are looked at: they are asked for when it rests.
  function ahead() {
    clearTimeout(resting);
    if (coming.size) return;
    if (jumped) { jumped = false; resting = setTimeout(ahead, REST); return; }
    const index = Math.floor(wanted / chunk);
    const last = Math.floor((length - 1) / chunk);
    const missing = [index, index + direction].find((each) => each >= 0 && each <= last && !chunks.has(each));
    if (missing !== undefined) load(missing).then(ahead, () => {});
  }

  name();
  return {
    figure,
    show(row) {
      if (row === wanted || length < 1) return;
      direction = row < wanted ? -1 : 1;
      jumped = wanted >= 0 && Math.abs(row - wanted) > chunk;
      wanted = Math.min(row, length - 1);
      draw();
    },
    leave() { clearTimeout(resting); left.abort(); forget(-1, true); pools.delete(pool); },
  };
}

// The colours of a depth map, from its smallest to its largest.
function scale({ low, high, unit, colors }) {
  const bar = element("span", { class: "colors" });
  bar.style.background = `linear-gradient(to right, ${colors.map((color) => `rgb(${color.join(" ")})`).join(", ")})`;
  const said = (value) => `${Number(value.toPrecision(3))}${unit ? ` ${unit}` : ""}`;
  return element("div", { class: "scale", role: "img", "aria-label": `colours from ${said(low)} to ${said(high)}` }, said(low), bar, said(high));
}
