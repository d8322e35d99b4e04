// Maps of samples and cells, and the distance matrix: colours by any column, and one highlighted sample in all of them.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip"), said = document.getElementById("said");
  const { names, columns, order, distances, largest } = data.samples;
  const SVG = document.querySelector("svg").namespaceURI;
  const place = [];  // row of each sample in the matrix
  order.forEach((sample, row) => { place[sample] = row; });

  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
  }
  function leave() {
    tip.hidden = true;
    highlight(null);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Mark a sample in map, matrix, table and cells; in the matrix its row, and the column of the second sample.
  function highlight(sample, other = sample) {
    document.querySelectorAll("[data-s].on").forEach((element) => element.classList.remove("on"));
    const bands = document.querySelectorAll(".band");
    bands.forEach((band) => band.classList.toggle("on", sample !== null));
    document.querySelectorAll(".dots.of-sample").forEach((dots) => dots.remove());
    if (sample === null) return;
    for (const one of new Set([sample, other])) {
      document.querySelectorAll('[data-s="' + one + '"]').forEach((element) => element.classList.add("on"));
    }
    bands[0].setAttribute("y", place[sample] * bands[0].height.baseVal.value);
    bands[1].setAttribute("x", place[other] * bands[1].width.baseVal.value);
    const own = data.cells.columns.at(-1).codes;
    document.querySelectorAll("[data-map=cells] svg.figure").forEach((figure) => {
      const dots = element("g", { class: "dots of-sample" });
      dots.append(element("path", { stroke: "currentColor", d: dotsOf((k) => own[k] === sample) }));
      figure.append(dots);
    });
  }

  function element(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  const dotsOf = (chosen) => data.cells.x.map((x, k) => (chosen(k) ? "M" + x + " " + data.cells.y[k] + "h0" : "")).join("");
  const rampOf = (code) => Math.min(Math.floor(code / 112), data.ramp.length - 1);
  const groupOf = (column, k) => (column.codes[k] < 0 ? -1 : column.values ? column.codes[k] : rampOf(column.codes[k]));
  const colourOf = (column, group) =>
    group < 0 ? data.missing : column.values ? data.colours[group % data.colours.length] : data.ramp[group];
  const shapeOf = (column, group) => "#shape-" + (column.values && group >= 0 ? group % data.shapes : 0);
  function valueOf(column, k) {
    const code = column.codes[k];
    if (code < 0) return "unknown";
    return column.values ? column.values[code] : String(Number((column.low + (code / 1000) * (column.high - column.low)).toPrecision(3)));
  }
  const describe = (k) => [names[k], ...columns.map((column) => column.name + ": " + valueOf(column, k))].join("\n");

  function legend(list, column, shaped) {
    const entry = (sign, text) => {
      const item = document.createElement("li");
      item.append(sign, text);
      return item;
    };
    const swatch = (group) => {
      const svg = element("svg", { viewBox: "-6 -6 12 12", "aria-hidden": "true" });
      svg.append(element("use", { href: shaped ? shapeOf(column, group) : "#shape-0", fill: colourOf(column, group) }));
      return svg;
    };
    const items = [];
    if (column.values) {
      column.values.forEach((name, code) => { if (column.codes.includes(code)) items.push(entry(swatch(code), name)); });
    } else {
      const bar = document.createElement("span");
      bar.className = "ramp";
      items.push(entry(bar, Number(column.low.toPrecision(3)) + " to " + Number(column.high.toPrecision(3))));
    }
    if (column.codes.some((code) => code < 0)) items.push(entry(swatch(-1), "unknown"));
    list.replaceChildren(...items);
  }

  document.querySelectorAll("[data-map=samples]").forEach((figure) => {
    const marks = [...figure.querySelectorAll(".mark")], select = figure.querySelector("select");
    marks.forEach((mark, k) => {
      mark.addEventListener("pointermove", (event) => { highlight(k); show(describe(k), event.clientX, event.clientY); });
      mark.addEventListener("pointerleave", leave);
      mark.addEventListener("focus", () => {
        if (!mark.matches(":focus-visible")) return;
        const box = mark.getBoundingClientRect();
        highlight(k);
        show(describe(k), box.right, box.bottom);
      });
      mark.addEventListener("blur", leave);
      mark.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = marks[(k + step + marks.length) % marks.length];
        mark.setAttribute("tabindex", -1);
        next.setAttribute("tabindex", 0);
        next.focus();
      });
    });
    function colour() {
      const column = columns[select.value];
      marks.forEach((mark, k) => {
        mark.setAttribute("href", shapeOf(column, groupOf(column, k)));
        mark.setAttribute("fill", colourOf(column, groupOf(column, k)));
        mark.setAttribute("aria-label", names[k] + ", " + column.name + ": " + valueOf(column, k));
      });
      legend(figure.querySelector(".legend"), column, true);
    }
    select.addEventListener("change", colour);
    if (select.value !== "0") colour();  // a browser may remember the choice
  });

  document.querySelectorAll("[data-map=matrix]").forEach((figure) => {
    const picture = figure.querySelector("image"), n = names.length;
    let at = [0, 0];
    function point(row, column) {
      at = [row, column];
      const [a, b] = [order[row], order[column]];
      highlight(a, b);
      const value = distances ? "\ndistance " + Number(((distances[a][b] / 1000) * largest).toPrecision(3)) : "";
      return names[a] + " (" + valueOf(columns[0], a) + ") – " + names[b] + " (" + valueOf(columns[0], b) + ")" + value;
    }
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const cell = (from, size) => Math.max(0, Math.min(n - 1, Math.floor((from / size) * n)));
      show(point(cell(event.clientY - box.top, box.height), cell(event.clientX - box.left, box.width)), event.clientX, event.clientY);
    });
    picture.addEventListener("pointerleave", leave);
    figure.addEventListener("blur", leave);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const text = point(...at.map((from, k) => Math.max(0, Math.min(n - 1, from + step[k]))));
      const box = figure.querySelector(".band").getBoundingClientRect();
      show(text, box.left + 40, box.bottom);
      said.textContent = text;
    });
  });

  document.querySelectorAll("#samples-table tbody tr").forEach((row) => {
    row.addEventListener("pointerenter", () => highlight(Number(row.dataset.s)));
    row.addEventListener("pointerleave", leave);
  });

  // Cells: one path per colour; the cell nearest to the pointer is named.
  document.querySelectorAll("[data-map=cells]").forEach((figure) => {
    const svg = figure.querySelector("svg.figure"), select = figure.querySelector("select");
    const { x, y, columns: known } = data.cells;
    function colour() {
      const column = known[select.value], groups = x.map((_, k) => groupOf(column, k));
      const paths = [...new Set(groups)].sort((a, b) => a - b).map((group) =>
        element("path", { stroke: colourOf(column, group), d: dotsOf((k) => groups[k] === group) }));
      svg.querySelector(".dots").replaceChildren(...paths);
      legend(figure.querySelector(".legend"), column, false);
    }
    select.addEventListener("change", colour);
    if (select.value !== select.querySelector("[selected]")?.value) colour();
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
      const px = ((event.clientX - box.left) / box.width) * view.width, py = ((event.clientY - box.top) / box.height) * view.height;
      let best = -1, least = 15 ** 2;
      for (let k = 0; k < x.length; k++) {
        const far = (x[k] - px) ** 2 + (y[k] - py) ** 2;
        if (far < least) [best, least] = [k, far];
      }
      if (best < 0) return leave();
      if (known.at(-1).codes[best] >= 0) highlight(known.at(-1).codes[best]);
      show(known.map((column) => column.name + ": " + valueOf(column, best)).join("\n"), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", leave);
  });
})();
