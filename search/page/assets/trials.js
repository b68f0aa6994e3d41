"use strict";
// The rows of the table of all trials are the page's data: the panel, the filter and the sorting read them.

const table = document.getElementById("all-trials");
const rows = new Map(table ? [...table.tBodies[0].rows].map((row) => [row.id, row]) : []);
const headings = table ? [...table.tHead.rows[0].cells] : [];

const marks = new Map([...rows.keys()].map((id) => [id, []])); // elements of all charts that show a trial, by its id
for (const mark of document.querySelectorAll("[data-t]")) marks.get(mark.dataset.t)?.push(mark);

const panel = document.getElementById("trial");
let selected = null; // the trial that the panel shows while the pointer is on none
let pointed = null;

/** Highlight a trial in all charts and show it in the panel; null: show the selected trial again. */
function pointAt(id) {
  if (pointed === id) return;
  light(pointed, "hot", false);
  pointed = id;
  light(pointed, "hot", true);
  fillPanel(pointed ?? selected);
}

/** Keep a trial in the panel, or release it if it is selected already. */
function select(id) {
  const next = id === selected ? null : id;
  light(selected, "selected", false);
  selected = next;
  light(selected, "selected", true);
  fillPanel(pointed ?? selected);
}

function light(id, name, on) {
  if (!rows.has(id)) return;
  for (const mark of [...marks.get(id), rows.get(id)]) {
    mark.classList.toggle(name, on);
    if (on && mark.tagName === "path") mark.parentNode.append(mark); // above all other lines
  }
}

function fillPanel(id) {
  if (!panel) return;
  const row = rows.get(id);
  panel.replaceChildren(...(row ? described(row) : [element("p", "Point at a trial, or reach one with the Tab and arrow keys.")]));
}

/** A trial's row as a list: its state and picks, then each heading with its value. */
function described(row) {
  const title = element("h3", row.id, " ", row.querySelector(".state").cloneNode(true));
  const words = row.querySelector(".state").title;
  const picked = row.cells[0].querySelector("small")?.textContent;
  const list = element("dl");
  headings.forEach((heading, i) => {
    const text = row.cells[i].textContent;
    if (i === 0 || heading.textContent === "state" || heading.dataset.stage || text === "" || text === "–") return;
    list.append(element("dt", heading.textContent), element("dd", text));
  });
  const link = element("a", "Row in the table of all trials");
  link.href = `#${encodeURIComponent(row.id)}`;
  return [title, element("p", [picked, words].filter(Boolean).join(", ")), list, ...stageBar(row), element("p", link)];
}

/** A bar of the step's time by stage; empty: not measured. */
function stageBar(row) {
  const parts = headings
    .map((heading, i) => [heading.dataset.stage, parseFloat(row.cells[i].textContent.replaceAll(",", ""))])
    .filter(([stage, milliseconds]) => stage && milliseconds > 0);
  const whole = parts.reduce((sum, [, milliseconds]) => sum + milliseconds, 0);
  if (!whole) return [];
  const bar = element("div");
  bar.className = "stage-bar";
  for (const [stage, milliseconds] of parts) {
    const part = element("i");
    part.className = `swatch ${stage}`;
    part.style.width = `${(100 * milliseconds) / whole}%`;
    bar.append(part);
  }
  const shares = parts.map(([stage, milliseconds]) => `${stage} ${Math.round((100 * milliseconds) / whole)}%`);
  const words = element("p", `A step of ${whole.toPrecision(3)} ms: ${shares.join(", ")}`);
  words.className = "note";
  return [bar, words];
}

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}
