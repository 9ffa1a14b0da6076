// The one clock of a page: the place on the axis of steps, and how it moves. `go(x)` sets it; `limits()` says the first
// and the last place, `span()` those of the loop, and `moved(x)` follows.

export const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];

export function makeClock(rate, limits, span, moved, changed) {
  const clock = { x: 0, playing: false, loop: false, speed: 1 };
  let started = 0, from = 0, left = false;

  const ends = () => (clock.loop ? span() : limits());

  clock.go = (x) => {
    const [first, last] = limits();
    clock.x = Math.min(Math.max(Math.round(x), first), Math.max(last, first));
    if (clock.playing) begin();
    moved(clock.x);
  };

  function begin() {
    started = performance.now();
    from = clock.x;
  }

  clock.toggle = () => {
    clock.playing = !clock.playing;
    if (clock.playing) {
      const [first, last] = ends();
      if (clock.x >= last || clock.x < first) { clock.x = first; moved(first); }
      begin();
      requestAnimationFrame(tick);
    }
    changed();
  };

  clock.setSpeed = (speed) => {
    clock.speed = speed;
    begin();
    changed();
  };

  clock.faster = (by) => clock.setSpeed(SPEEDS[Math.min(Math.max(SPEEDS.indexOf(clock.speed) + by, 0), SPEEDS.length - 1)]);

  clock.setLoop = (loop) => {
    clock.loop = loop;
    changed();
  };

  function tick(now) {
    if (!clock.playing || left) return;
    const [first, last] = ends();
    let x = from + Math.max(0, Math.floor(((now - started) / 1000) * rate * clock.speed));
    if (clock.loop && (x > last || x < first)) {
      clock.x = from = x = first;
      started = now;
      moved(x);
    }
    x = Math.min(x, last);
    if (x !== clock.x) { clock.x = x; moved(x); }
    if (x >= last && !clock.loop) clock.toggle(); else requestAnimationFrame(tick);
  }

  clock.leave = () => { left = true; clock.playing = false; };
  return clock;
}
