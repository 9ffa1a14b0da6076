// Pictures of a camera on a canvas. Chunks of consecutive pictures are fetched ahead of the movement; a picture that no
// chunk has yet is fetched alone, so that a jump shows something at once. At most KEPT bytes of JPEG stay in memory.

import { element, address } from "./net.js";

const KEPT = 48 << 20;
const REST = 150; // milliseconds

// A panel is {figure, show(row), leave()}. `length` is the number of rows of the camera, `chunk` that of a chunk.
export function cameraPanel(api, number, camera, chunk, length) {
  const canvas = element("canvas", { role: "img", "aria-label": camera, title: "click: larger", onclick: () => figure.classList.toggle("large") });
  const figure = element("figure", {}, canvas, element("figcaption", {}, camera));
  const chunks = new Map(); // number: {pictures, bytes}, in the order of their use
  const coming = new Map(); // number: promise
  const left = new AbortController();
  let bytes = 0, wanted = -1, shown = -1, direction = 1, drawing = false, jumped = false, resting = 0;

  async function fetched(path) {
    const response = await fetch(path, { signal: left.signal });
    if (!response.ok) throw new Error((await response.json()).error);
    return response;
  }

  function load(index) {
    if (coming.has(index)) return coming.get(index);
    const promise = fetched(address(`${api}/chunk/${number}/${index}`, { camera })).then((response) => response.arrayBuffer()).then((buffer) => {
      keep(index, buffer);
    }).finally(() => coming.delete(index));
    coming.set(index, promise);
    return promise;
  }

  function keep(index, buffer) {
    const count = new DataView(buffer).getUint32(0, true);
    const sizes = new Uint32Array(buffer, 4, count);
    const pictures = [];
    let place = 4 * (count + 1);
    for (const size of sizes) {
      pictures.push(new Blob([new Uint8Array(buffer, place, size)], { type: "image/jpeg" }));
      place += size;
    }
    chunks.set(index, { pictures, bytes: buffer.byteLength });
    bytes += buffer.byteLength;
    for (const [oldest, each] of chunks) {
      if (bytes <= KEPT || oldest === index) break;
      chunks.delete(oldest);
      bytes -= each.bytes;
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
    if (coming.has(index)) {
      await coming.get(index);
      return kept(row);
    }
    return (await fetched(address(`${api}/picture/${number}/${row}`, { camera }))).blob();
  }

  async function draw() {
    if (drawing) return;
    drawing = true;
    try {
      while (wanted !== shown && !left.signal.aborted) {
        const row = wanted;
        const blob = await picture(row);
        if (!blob) continue;
        const bitmap = await createImageBitmap(blob);
        if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
          canvas.width = bitmap.width;
          canvas.height = bitmap.height;
          canvas.classList.toggle("small", bitmap.width < 160);
        }
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        bitmap.close();
        shown = row;
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

  return {
    figure,
    show(row) {
      if (row === wanted || length < 1) return;
      direction = row < wanted ? -1 : 1;
      jumped = wanted >= 0 && Math.abs(row - wanted) > chunk;
      wanted = Math.min(row, length - 1);
      draw();
    },
    leave() { clearTimeout(resting); left.abort(); },
  };
}
