// The chart of the front: the pointer selects the nearest point; Tab reaches the chart, arrow keys its points.

const REACH = 28; // pixels within which a point reacts to the pointer

for (const chart of document.querySelectorAll(".chart.front > svg")) {
  const points = [...chart.querySelectorAll("a[data-t]")].map((link) => {
    const dot = link.querySelector(".dot");
    return { link, x: parseFloat(dot.getAttribute("cx")), y: parseFloat(dot.getAttribute("cy")) };
  });

  const nearest = (event) => {
    const box = chart.getBoundingClientRect();
    let best = null;
    let least = REACH;
    for (const point of points) {
      if (point.link.classList.contains("out")) continue;
      const x = box.left + (box.width * point.x) / 100;
      const y = box.top + (box.height * point.y) / 100;
      const distance = Math.hypot(event.clientX - x, event.clientY - y);
      if (distance <= least) [best, least] = [point.link, distance];
    }
    return best;
  };

  chart.addEventListener("pointermove", (event) => pointAt(nearest(event)?.dataset.t ?? null));
  chart.addEventListener("pointerleave", () => pointAt(null));
  chart.addEventListener("click", (event) => {
    event.preventDefault(); // without scripts a point is a link to its row
    const link = event.detail === 0 ? event.target.closest("a[data-t]") : nearest(event); // 0: a key, not a pointer
    if (link) select(link.dataset.t);
  });

  const focusable = (link) => {
    for (const point of points) point.link.setAttribute("tabindex", point.link === link ? "0" : "-1");
  };
  chart.addEventListener("focusin", (event) => {
    const link = event.target.closest("a[data-t]");
    if (!link) return;
    focusable(link);
    pointAt(link.dataset.t);
  });
  chart.addEventListener("focusout", () => pointAt(null));
  chart.addEventListener("keydown", (event) => {
    const along = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1] }[event.key];
    if (!along) return;
    event.preventDefault();
    const [axis, step] = along;
    const order = points.filter((p) => !p.link.classList.contains("out")).sort((a, b) => a[axis] - b[axis]);
    const now = order.findIndex((point) => point.link === event.target.closest("a[data-t]"));
    order[Math.min(Math.max(now + step, 0), order.length - 1)]?.link.focus();
  });
  focusable((points.find((point) => point.link.classList.contains("pick")) ?? points[0])?.link);
}

// Lines of the other charts, bars and rows react too.
for (const box of document.querySelectorAll(".curves, .parallel, .bars, #all-trials")) {
  const trialOf = (event) => event.target.closest("[data-t]")?.dataset.t ?? event.target.closest("tbody tr")?.id ?? null;
  box.addEventListener("pointerover", (event) => pointAt(trialOf(event)));
  box.addEventListener("pointerleave", () => pointAt(null));
  box.addEventListener("click", (event) => {
    const id = trialOf(event);
    if (id && !event.target.closest("a")) select(id);
  });
}
