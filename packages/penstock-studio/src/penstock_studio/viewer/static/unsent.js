// Changes of marks, on their way to the server. Each is kept in this browser until the server has answered, so that a server
// that is gone, or a tab that closes, loses none: they are sent again when it is there. Tabs take turns.

const KEY = "penstock.unsent";
const AGAIN = 2000; // milliseconds
const asked = new Map(); // by id of a change of this tab: what waits for its answer
let told = () => {}, timer;

const read = () => JSON.parse(localStorage.getItem(KEY) || "[]");

function write(changes) {
  localStorage.setItem(KEY, JSON.stringify(changes));
  told(changes.length);
}

// Save a change {before, after} of an episode. The promise has the marks that the file has now, or fails if it was refused.
export function saveMarks(path, change) {
  const id = crypto.randomUUID();
  write([...read(), { id, path, change }]);
  const answer = new Promise((resolve, reject) => asked.set(id, { resolve, reject }));
  flush();
  return answer;
}

// `tell(number)` is called with the number of changes that wait.
export function watchUnsent(tell) {
  told = tell;
  addEventListener("storage", () => told(read().length));
  if (read().length) flush();
}

function flush() {
  clearTimeout(timer);
  return navigator.locks.request(KEY, async () => {
    for (let changes = read(); changes.length; changes = read()) {
      const { id, path, change } = changes[0];
      let response;
      try {
        response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(change) });
      } catch {
        response = null; // nobody answers
      }
      if (!response || [401, 403, 502, 503, 504].includes(response.status)) { // 403: started again, with another token
        told(read().length);
        timer = setTimeout(flush, AGAIN);
        return;
      }
      settle(id, path, response.ok, await response.json().catch(() => ({ error: response.statusText })));
    }
  });
}

// A refused change takes those with it that were made on top of it.
function settle(id, path, ok, answer) {
  const gone = read().filter((each) => each.id === id || (!ok && each.path === path));
  write(read().filter((each) => !gone.some((other) => other.id === each.id)));
  for (const each of gone) {
    const waiting = asked.get(each.id);
    asked.delete(each.id);
    if (ok) waiting?.resolve(answer);
    else waiting?.reject(new Error(answer.error));
  }
}
