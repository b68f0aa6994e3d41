// Copying, and the page of a running run: it reloads itself and restores the reader's view.

document.documentElement.classList.add("scripted");
const settings = JSON.parse(document.getElementById("page").textContent);

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // the browser refuses the clipboard: the reader copies with a key
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && selected) select(selected);
});

// --- the reader's view, saved by names because the next page may have more fields, axes and trials -------------------

const memory = `training-search ${settings.run}`;
const fields = form ? [...form.elements].filter((field) => field.matches("input")) : [];
const drawers = [...document.querySelectorAll("details")];

const nameOfField = ({ type, name, value, dataset }) =>
  [name, dataset.setting, dataset.end, type === "checkbox" ? value : ""].join(" ");
const nameOfDrawer = (drawer) =>
  `${drawer.closest("article")?.querySelector("h3").textContent} ${drawer.querySelector("summary").firstChild.textContent}`;
const nameOfAxis = (axis) => uprights[axis].querySelector(".name").textContent;

function remember() {
  const left = {
    fields: fields.map((field) => [nameOfField(field), field.type === "checkbox" ? field.checked : field.value]),
    drawers: drawers.map((drawer) => [nameOfDrawer(drawer), drawer.open]),
    brushes: [...brushes].map(([axis, ends]) => [nameOfAxis(axis), ends]),
    sorted: sortedBy && [headings[sortedBy[0]].textContent, sortedBy[1]],
    focused: document.activeElement?.dataset?.t ?? null,
    selected,
    scroll: scrollY,
  };
  try {
    sessionStorage.setItem(memory, JSON.stringify(left));
  } catch {} // without storage the view is not restored
}

function remembered() {
  try {
    const left = JSON.parse(sessionStorage.getItem(memory));
    sessionStorage.removeItem(memory);
    return left;
  } catch {
    return null;
  }
}

function restore(left) {
  const values = new Map(left.fields);
  for (const field of fields) {
    const value = values.get(nameOfField(field));
    if (value !== undefined) field[field.type === "checkbox" ? "checked" : "value"] = value;
  }
  const open = new Map(left.drawers);
  for (const drawer of drawers) drawer.open = open.get(nameOfDrawer(drawer)) ?? drawer.open;
  const ends = new Map(left.brushes);
  uprights.forEach((_, axis) => ends.has(nameOfAxis(axis)) && setBrush(axis, ...ends.get(nameOfAxis(axis))));
  const column = headings.findIndex((heading) => heading.textContent === left.sorted?.[0]);
  if (column >= 0) sortBy(column, left.sorted[1]);
  if (rows.has(left.selected)) select(left.selected);
  refilter();
  marks.get(left.focused)?.find((mark) => mark.tagName === "a")?.focus({ preventScroll: true });
  scrollTo({ top: left.scroll, behavior: "instant" });
}

const left = remembered();
if (left) restore(left);
else select(decodeURIComponent(document.querySelector(".answer .lead a")?.hash.slice(1) ?? "") || null);

// --- while the run is running ----------------------------------------------------------------------------------------

if (settings.refreshSeconds) {
  history.scrollRestoration = "manual";
  const pause = document.getElementById("pause");
  const written = Date.now();
  let paused = false;
  let held = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
  });
  addEventListener("pointerdown", () => (held = true));
  addEventListener("pointerup", () => (held = false));
  addEventListener("pointercancel", () => (held = false));
  const busy = () => held || document.hidden || !getSelection().isCollapsed || document.activeElement?.matches("input");
  setInterval(() => {
    const seconds = Math.round((Date.now() - written) / 1000);
    document.getElementById("age").textContent = ` loaded ${seconds} s ago`;
    if (paused || busy() || seconds < settings.refreshSeconds) return;
    remember();
    location.reload();
  }, 1000);
}
