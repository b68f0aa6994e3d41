"use strict";
// The list of runs: a filter by words, and reloading that keeps it. table.js sorts the rows.

const table = document.getElementById("runs");
const rows = new Map([...table.tBodies[0].rows].map((row) => [row.id, row]));
const headings = [...table.tHead.rows[0].cells];
const words = document.getElementById("words");
const memory = `training-search ${location.pathname}`;
const { refreshSeconds } = JSON.parse(document.getElementById("page").textContent);

document.documentElement.classList.add("scripted");

function refilter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows.values()) {
    row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    shown += !row.hidden;
  }
  document.getElementById("shown").value = `${shown} of ${rows.size}`;
}

words.addEventListener("input", refilter);

addEventListener("DOMContentLoaded", () => {
  try {
    const left = JSON.parse(sessionStorage.getItem(memory));
    words.value = left?.words ?? "";
    const column = headings.findIndex((heading) => heading.textContent === left?.sorted?.[0]);
    if (column >= 0) sortBy(column, left.sorted[1]);
  } catch {} // without storage the view is not restored
  refilter();
});

if (refreshSeconds) {
  setInterval(() => {
    if (document.hidden || document.activeElement === words || !getSelection().isCollapsed) return;
    const sorted = sortedBy && [headings[sortedBy[0]].textContent, sortedBy[1]];
    try {
      sessionStorage.setItem(memory, JSON.stringify({ words: words.value, sorted }));
    } catch {}
    location.reload();
  }, 1000 * refreshSeconds);
}
