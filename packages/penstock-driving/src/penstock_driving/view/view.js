// A scene of a driving log from above, north up, around the ego: map, lights, agents, and where they will be.

import { json, arrays, element } from "/static/net.js";
import { prepared } from "/static/curves.js";

const AHEAD = 50; // frames of the future
const LIGHTS = ["--red", "--yellow", "--green"];
const KINDS = ["--vehicle", "--cycle", "--walker", "--others"];
const WIDTH = 7; // numbers of an agent

export async function panel(api, number) {
  const [scene, agents] = await Promise.all([json(`${api}/view/${number}`), arrays(`${api}/view/${number}/array`)]);
  const canvas = element("canvas", { class: "scene view", role: "img", "aria-label": "scene from above" });
  const caption = element("figcaption", {});
  const tracks = trackRows(scene, agents.values);
  const lanes = scene.lanes.map((sides) => ({ sides, box: bounds(sides.flat()) }));
  const crosswalks = scene.crosswalks.map((outline) => ({ outline, box: bounds(outline) }));
  let meters = 80, current = 0;

  function zoom(factor) {
    meters = Math.min(400, Math.max(20, meters * factor));
    show(current);
  }

  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15); }, { passive: false });

  function show(row) {
    if (!scene.ego.length) return;
    current = Math.min(row, scene.ego.length - 1);
    const { context, width, height } = prepared(canvas);
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(name);
    const [centerX, centerY] = scene.ego[current];
    const scale = Math.min(width, height) / meters;
    const at = ([x, y]) => [(x - centerX) * scale + width / 2, (centerY - y) * scale + height / 2];
    const seen = (box) => box[0] < centerX + width / scale / 2 && box[2] > centerX - width / scale / 2
      && box[1] < centerY + height / scale / 2 && box[3] > centerY - height / scale / 2;
    const line = (points, close = false) => {
      context.beginPath();
      points.forEach((point, i) => { const [x, y] = at(point); if (i) context.lineTo(x, y); else context.moveTo(x, y); });
      if (close) context.closePath();
    };
    map(context, color, seen, line);
    context.lineWidth = 2;
    context.strokeStyle = color("--ego");
    line(scene.ego.slice(0, current + 1));
    context.stroke();
    context.fillStyle = color("--text");
    for (let i = current + 2; i < Math.min(scene.ego.length, current + AHEAD); i += 2) {
      const [x, y] = at(scene.ego[i]);
      context.fillRect(x - 1, y - 1, 2, 2);
    }
    const counts = [0, 0, 0, 0];
    const here = [];
    for (let i = scene.offsets[current]; i < scene.offsets[current + 1]; i++) here.push(agents.values.subarray(i * WIDTH, (i + 1) * WIDTH));
    for (const agent of [...here].sort((one, other) => other[5] - one[5])) {
      counts[agent[5]] += 1;
      if (agent[5] < 3) future(context, color, line, agent);
      box(context, at, scale, agent, color(KINDS[agent[5]]), agent[5] < 3, color("--panel"));
    }
    box(context, at, scale, [...scene.ego[current], ...scene.extent], color("--ego"), true, color("--panel"));
    bar(context, height, scale, color("--dim"));
    caption.textContent = said(counts);
    canvas.dataset.row = String(current);
  }

  function map(context, color, seen, line) {
    context.fillStyle = color("--road");
    context.strokeStyle = color("--side");
    context.lineWidth = 0.8;
    for (const { sides, box } of lanes) {
      if (!seen(box)) continue;
      line([...sides[0], ...[...sides[1]].reverse()], true);
      context.fill();
      for (const side of sides) { line(side); context.stroke(); }
    }
    context.strokeStyle = color("--crosswalk");
    context.lineWidth = 1.2;
    for (const { outline, box } of crosswalks) if (seen(box)) { line(outline, true); context.stroke(); }
    context.lineWidth = 2;
    for (const [lane, light] of scene.lights[current]) {
      if (!seen(lanes[lane].box)) continue;
      context.strokeStyle = color(LIGHTS[light]);
      for (const side of lanes[lane].sides) { line(side); context.stroke(); }
    }
  }

  function future(context, color, line, agent) {
    const rows = tracks.get(agent[6]).filter(([frame]) => frame >= current && frame <= current + AHEAD).map(([, row]) => row);
    if (rows.length < 2) return;
    context.globalAlpha = 0.55;
    context.lineWidth = 1.2;
    context.strokeStyle = color(KINDS[agent[5]]);
    line(rows.map((row) => agents.values.subarray(row * WIDTH, row * WIDTH + 2)));
    context.stroke();
    context.globalAlpha = 1;
  }

  function said(counts) {
    const before = Math.max(current - 1, 0), after = Math.max(current, 1);
    const moved = after < scene.ego.length ? Math.hypot(scene.ego[after][0] - scene.ego[before][0], scene.ego[after][1] - scene.ego[before][1]) : 0;
    const passed = after < scene.ego.length ? scene.seconds[after] - scene.seconds[before] : 0;
    const speed = passed > 0 ? `, ${(moved / passed).toFixed(1)} m/s` : "";
    const kinds = [...scene.kinds, "others"].map((kind, i) => `${counts[i]} ${kind}`).filter((_, i) => counts[i]);
    return `${scene.seconds[current].toFixed(1)} s${speed}; ${kinds.join(", ") || "nobody"}${scene.map ? "" : "; a map is drawn with --view map=... and --view meta=..."}`;
  }

  const buttons = element("div", { class: "over" },
    element("button", { "aria-label": "larger", onclick: () => zoom(1 / 1.3) }, "+"), element("button", { "aria-label": "smaller", onclick: () => zoom(1.3) }, "−"));
  const figure = element("figure", { class: "driving" }, element("div", { class: "holder" }, canvas, buttons), caption, legend(scene));
  return { figure, show, leave() {} };
}

// Frame and row of each observation of a track, by its number.
function trackRows(scene, values) {
  const tracks = new Map();
  for (let frame = 0; frame + 1 < scene.offsets.length; frame++) {
    for (let row = scene.offsets[frame]; row < scene.offsets[frame + 1]; row++) {
      const track = values[row * WIDTH + 6];
      if (!tracks.has(track)) tracks.set(track, []);
      tracks.get(track).push([frame, row]);
    }
  }
  return tracks;
}

function bounds(points) {
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

function box(context, at, scale, [x, y, yaw, length, width], color, solid, nose) {
  const [pixelX, pixelY] = at([x, y]);
  context.save();
  context.translate(pixelX, pixelY);
  context.rotate(-yaw);
  const [long, wide] = [Math.max(length * scale, 2), Math.max(width * scale, 2)];
  context.fillStyle = context.strokeStyle = color;
  context.lineWidth = 1;
  if (solid) context.fillRect(-long / 2, -wide / 2, long, wide);
  else context.strokeRect(-long / 2, -wide / 2, long, wide);
  if (solid && long > 8) {
    context.strokeStyle = nose;
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(long / 2, 0);
    context.stroke();
  }
  context.restore();
}

function bar(context, height, scale, color) {
  context.fillStyle = color;
  context.fillRect(12, height - 14, 20 * scale, 2);
  context.font = "11px system-ui, sans-serif";
  context.fillText("20 m", 12, height - 19);
}

function legend(scene) {
  const names = [["ego", "--ego"], ...scene.kinds.map((kind, i) => [kind, KINDS[i]]), ["others", "--others"],
    ...(scene.map ? [["red light", "--red"], ["yellow", "--yellow"], ["green", "--green"], ["crosswalk", "--crosswalk"]] : [])];
  return element("ul", { class: "legend" }, ...names.map(([name, color]) => element("li", { "data-color": color.slice(2) }, name)));
}
