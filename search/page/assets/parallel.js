// Parallel coordinates: dragging along an axis filters the trials by that range.

const parallel = document.querySelector(".parallel > svg");
const uprights = parallel ? [...parallel.querySelectorAll(".upright")] : [];
const lineOf = new Map(parallel ? [...parallel.querySelectorAll("path")].map((line) => [line.dataset.t, line]) : []);
const heights = new Map(); // heights of each trial's line at the axes, read from its path on first use

function heightsOf(id) {
  if (!heights.has(id)) {
    const line = lineOf.get(id);
    heights.set(id, line && [...line.getAttribute("d").matchAll(/[ML][^ ]+ ([^ML]+)/g)].map((match) => parseFloat(match[1])));
  }
  return heights.get(id);
}

function setBrush(axis, from, to) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  if (high - low < 1) brushes.delete(axis); // a click
  else brushes.set(axis, [low, high]);
  drawBrush(axis);
}

function drawBrush(axis) {
  const [low, high] = brushes.get(axis) ?? [0, 0];
  const mark = uprights[axis].querySelector(".brush");
  mark.setAttribute("y", `${low}%`);
  mark.setAttribute("height", `${high - low}%`);
}

function clearBrushes() {
  const drawn = [...brushes.keys()];
  brushes.clear();
  drawn.forEach(drawBrush);
}

uprights.forEach((upright, axis) => {
  const grip = upright.querySelector(".grip");
  let begun = null;
  const height = (event) => {
    const box = parallel.getBoundingClientRect();
    return Math.min(Math.max((100 * (event.clientY - box.top)) / box.height, 0), 100);
  };
  grip.addEventListener("pointerdown", (event) => {
    begun = height(event);
    grip.setPointerCapture(event.pointerId);
    event.preventDefault(); // do not select text
  });
  grip.addEventListener("pointermove", (event) => {
    if (begun !== null) setBrush(axis, begun, height(event));
  });
  grip.addEventListener("pointerup", (event) => {
    if (begun === null) return;
    setBrush(axis, begun, height(event));
    begun = null;
    refilter();
  });
  grip.addEventListener("pointercancel", () => (begun = null));
});
