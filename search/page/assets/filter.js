// The filter of all charts and the table: by state, values of settings, words, and brushed ranges of axes.

const form = document.getElementById("filter");
const brushes = new Map(); // axis -> [from, to] in percent of the chart's height, from above
const columnOf = new Map(headings.map((heading, i) => [heading.dataset.setting, i]));

function refilter() {
  const conditions = form ? [...chosenValues(), ...ranges(), ...words()] : [];
  let left = 0;
  for (const [id, row] of rows) {
    const out = !(conditions.every((holds) => holds(row)) && crossesBrushes(id));
    row.hidden = out;
    for (const mark of marks.get(id)) mark.classList.toggle("out", out);
    left += !out;
  }
  const all = rows.size;
  const shown = document.getElementById("shown");
  const part = left === all ? "" : `${left.toLocaleString("en")} of `;
  if (shown) shown.value = `${part}${all.toLocaleString("en")} trials`;
}

function valueOf(row, setting) {
  return columnOf.has(setting) ? row.cells[columnOf.get(setting)].textContent : row.dataset.state;
}

/** A setting whose boxes are all checked does not filter; otherwise a trial must have one of the checked values. */
function chosenValues() {
  return [...grouped(form.querySelectorAll("input[type=checkbox]"))]
    .filter(([, group]) => group.some((box) => !box.checked))
    .map(([setting, group]) => {
      const wanted = new Set(group.filter((box) => box.checked).map((box) => box.value));
      return (row) => wanted.has(valueOf(row, setting));
    });
}

function grouped(boxes) {
  const groups = new Map();
  for (const box of boxes) groups.set(box.dataset.setting, [...(groups.get(box.dataset.setting) ?? []), box]);
  return groups;
}

function ranges() {
  return [...form.querySelectorAll("input[type=number]")]
    .filter((field) => field.value !== "")
    .map((field) => (row) => {
      const value = numberOf(row.cells[columnOf.get(field.dataset.setting)]);
      return field.dataset.end === "least" ? value >= field.valueAsNumber : value <= field.valueAsNumber;
    });
}

function words() {
  const wanted = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  return wanted.map((word) => (row) => row.textContent.toLowerCase().includes(word));
}

function crossesBrushes(id) {
  for (const [axis, [from, to]] of brushes) {
    const height = heightsOf(id)?.[axis];
    if (height === undefined || height < from || height > to) return false;
  }
  return true;
}

form?.addEventListener("input", refilter);
form?.addEventListener("submit", (event) => event.preventDefault());
form?.addEventListener("reset", () => {
  clearBrushes();
  setTimeout(refilter); // after the fields have been reset
});
