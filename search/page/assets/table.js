// The table sorts by the pressed heading; rows without a value come last in both directions.

let sortedBy = null; // [column, 1 or -1]

function sortBy(column, direction) {
  sortedBy = [column, direction];
  const values = new Map([...rows.values()].map((row) => [row, sortable(row.cells[column])]));
  const ordered = [...rows.values()].sort((a, b) => compared(values.get(a), values.get(b), direction));
  table.tBodies[0].append(...ordered);
  headings.forEach((heading, i) => {
    if (i === column) heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else heading.removeAttribute("aria-sort");
  });
}

function sortable(cell) {
  const text = cell.textContent;
  if (text === "" || text === "–") return null;
  const number = numberOf(cell);
  return cell.classList.contains("num") ? (Number.isNaN(number) ? null : number) : text;
}

/** The number in a cell; NaN: the cell has none. */
function numberOf(cell) {
  return parseFloat(cell.dataset.v ?? cell.textContent.replaceAll(",", ""));
}

function compared(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (typeof a === "number" && typeof b === "number" ? a - b : `${a}`.localeCompare(`${b}`, "en", { numeric: true }));
}

headings.forEach((heading, column) => {
  heading.querySelector("button").addEventListener("click", () => {
    const first = heading.classList.contains("num") && !heading.dataset.setting ? -1 : 1; // for results the highest
    sortBy(column, sortedBy?.[0] === column ? -sortedBy[1] : first);
  });
});
