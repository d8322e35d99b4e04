// Maps of samples and cells, and the heat map: names on hover and focus, colour by any column.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const said = document.getElementById("said");
  const MISSING = "#9a9a9a";

  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
  }
  const hide = () => { tip.hidden = true; };
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });

  // A number from 0 to 1000 as a colour between the stops of the ramp.
  function ramp(value) {
    const at = (value / 1000) * (data.ramp.length - 1), k = Math.min(Math.floor(at), data.ramp.length - 2);
    return "rgb(" + data.ramp[k].map((low, c) => Math.round(low + (at - k) * (data.ramp[k + 1][c] - low))).join() + ")";
  }
  const colourOf = (column, k) => {
    const code = column.codes[k];
    if (code < 0) return MISSING;
    return column.values ? data.colours[code % data.colours.length] : ramp(code);
  };
  const shapeOf = (column, k) => "#shape-" + (column.values && column.codes[k] >= 0 ? column.codes[k] % data.shapes : 0);
  function valueOf(column, k) {
    const code = column.codes[k];
    if (code < 0) return "unknown";
    if (column.values) return column.values[code];
    return String(Number((column.low + (code / 1000) * (column.high - column.low)).toPrecision(3)));
  }

  function legend(list, column, shapes) {
    const items = [];
    if (column.values) {
      column.values.forEach((name, code) => {
        if (!column.codes.includes(code)) return;
        const mark = { codes: [code], values: column.values };
        items.push(entry(swatch(colourOf(mark, 0), shapes ? shapeOf(mark, 0) : "#shape-0"), name));
      });
    } else {
      const bar = document.createElement("span");
      bar.className = "ramp";
      bar.style.background = "linear-gradient(to right," + [0, 250, 500, 750, 1000].map(ramp).join() + ")";
      items.push(entry(bar, Number(column.low.toPrecision(3)) + " to " + Number(column.high.toPrecision(3))));
    }
    if (column.codes.some((code) => code < 0)) items.push(entry(swatch(MISSING, "#shape-0"), "unknown"));
    list.replaceChildren(...items);
  }
  function entry(sign, text) {
    const item = document.createElement("li");
    item.append(sign, text);
    return item;
  }
  function swatch(colour, shape) {
    const any = document.querySelector("svg");
    const svg = document.createElementNS(any.namespaceURI, "svg"), mark = document.createElementNS(any.namespaceURI, "use");
    svg.setAttribute("viewBox", "-3 -3 6 6");
    svg.setAttribute("aria-hidden", "true");
    mark.setAttribute("href", shape);
    mark.setAttribute("fill", colour);
    svg.append(mark);
    return svg;
  }

  // Samples: the marks of the figure. One of them can be reached by tab, arrows go on to the next.
  function sampleMap(figure) {
    const marks = [...figure.querySelectorAll("[id^=samples-map-marks] use")], select = figure.querySelector("select");
    const { names, columns } = data.samples, own = figure.querySelector("#samples-map-legend");
    const drawn = marks.map((mark) => [mark.getAttribute("href"), mark.getAttribute("style")]);
    const describe = (k) => [names[k], ...columns.map((column) => column.name + ": " + valueOf(column, k))].join("\n");
    const name = (mark, k, column) => mark.setAttribute("aria-label", names[k] + ", " + column.name + ": " + valueOf(column, k));
    marks.forEach((mark, m) => {
      const k = data.samples.marks[m];
      mark.classList.add("mark");
      mark.setAttribute("role", "img");
      mark.setAttribute("tabindex", m === 0 ? 0 : -1);
      name(mark, k, columns[0]);
      mark.addEventListener("pointermove", (event) => show(describe(k), event.clientX, event.clientY));
      mark.addEventListener("pointerleave", hide);
      mark.addEventListener("focus", () => {
        const box = mark.getBoundingClientRect();
        if (mark.matches(":focus-visible")) show(describe(k), box.right, box.bottom);
      });
      mark.addEventListener("blur", hide);
      mark.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = marks[(m + step + marks.length) % marks.length];
        mark.setAttribute("tabindex", -1);
        next.setAttribute("tabindex", 0);
        next.focus();
      });
    });
    function colour() {
      const first = select.value === "0", column = columns[select.value], list = figure.querySelector(".legend");
      marks.forEach((mark, m) => {
        const k = data.samples.marks[m], shade = colourOf(column, k);
        mark.setAttribute("href", first ? drawn[m][0] : shapeOf(column, k));
        mark.setAttribute("style", first ? drawn[m][1] : "fill: " + shade + "; stroke: " + shade);
        name(mark, k, column);
      });
      own.style.visibility = first ? "" : "hidden";  // the legend in the figure is that of the first column
      if (first) list.replaceChildren(); else legend(list, column, true);
    }
    select.addEventListener("change", colour);
    if (select.value !== "0") colour();  // a browser may remember the choice
  }

  // Cells: too many to be elements, so they are drawn; the nearest to the pointer is named.
  function cellMap(figure) {
    const canvas = figure.querySelector("canvas"), select = figure.querySelector("select");
    const { x, y, columns } = data.cells;
    const place = (box, k) => [10 + (x[k] / 1000) * (box.width - 20), 10 + (1 - y[k] / 1000) * (box.height - 20)];
    function draw() {
      const box = { width: canvas.clientWidth, height: canvas.clientHeight }, column = columns[select.value];
      const scale = Math.max(2, devicePixelRatio || 1);  // enough for a printer, too
      canvas.width = box.width * scale;
      canvas.height = box.height * scale;
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.globalAlpha = x.length > 1500 ? 0.7 : 0.85;
      const radius = Math.max(1.1, Math.min(2.6, (box.width / 420) * (x.length > 1500 ? 1.5 : 2)));
      for (let k = 0; k < x.length; k++) {
        const [left, top] = place(box, k);
        pen.fillStyle = colourOf(column, k);
        pen.beginPath();
        pen.arc(left, top, radius, 0, 7);
        pen.fill();
      }
      pen.globalAlpha = 1;
      pen.fillStyle = getComputedStyle(figure.querySelector(".legend")).color;
      pen.font = "12px system-ui, sans-serif";
      pen.fillText("axis 1 →", box.width - 58, box.height - 8);
      pen.fillText("↑ axis 2", 8, 16);
      canvas.setAttribute("aria-label", x.length + " cells in the learned space, coloured by " + column.name);
      legend(figure.querySelector(".legend"), column, false);
    }
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      let best = -1, least = 144;
      for (let k = 0; k < x.length; k++) {
        const [left, top] = place(box, k);
        const far = (left - event.clientX + box.left) ** 2 + (top - event.clientY + box.top) ** 2;
        if (far < least) { least = far; best = k; }
      }
      if (best < 0) return hide();
      show(columns.map((column) => column.name + ": " + valueOf(column, best)).join("\n"), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", hide);
    select.addEventListener("change", draw);
    new ResizeObserver(draw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  // The heat map: a row and a column are found from the pointer, or walked to with arrows.
  function heatMap(figure) {
    const { order, far, most } = data.heat, names = data.samples.names, label = data.samples.columns[0], n = order.length;
    const svg = figure.querySelector("svg"), picture = figure.querySelector("#distances-map-distances");
    const cursor = document.createElementNS(svg.namespaceURI, "rect");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("transform", picture.getAttribute("transform"));  // in which a pair is a square of side 1
    cursor.setAttribute("width", 1);
    cursor.setAttribute("height", 1);
    svg.append(cursor);
    let at = [0, 0];
    function point(row, column) {
      at = [row, column];
      cursor.setAttribute("x", column);
      cursor.setAttribute("y", row);
      const [a, b] = [order[row], order[column]];
      const value = ((far[row][column] / 1000) * most).toPrecision(3);
      return names[a] + " (" + valueOf(label, a) + ") – " + names[b] + " (" + valueOf(label, b) + ")\ndistance " + value;
    }
    svg.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const column = Math.floor(((event.clientX - box.left) / box.width) * n);
      const row = Math.floor(((event.clientY - box.top) / box.height) * n);
      if (row < 0 || column < 0 || row >= n || column >= n) return hide();
      show(point(row, column), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      const text = point(Math.max(0, Math.min(n - 1, at[0] + step[0])), Math.max(0, Math.min(n - 1, at[1] + step[1])));
      const box = cursor.getBoundingClientRect();
      show(text, box.right, box.bottom);
      said.textContent = text;
    });
  }

  document.querySelectorAll("[data-map=samples]").forEach(sampleMap);
  document.querySelectorAll("[data-map=cells]").forEach(cellMap);
  document.querySelectorAll(".heat").forEach(heatMap);
  data.scores.forEach((text, k) => {
    const mark = document.getElementById("scores-score-" + k);
    if (!mark) return;
    mark.addEventListener("pointermove", (event) => show(text, event.clientX, event.clientY));
    mark.addEventListener("pointerleave", hide);
  });
})();
