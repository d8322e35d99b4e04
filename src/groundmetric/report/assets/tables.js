// Tables that sort by a click on a heading, filter as one types, and can be saved as CSV.
(() => {
  "use strict";
  const said = document.getElementById("said");
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  const content = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  function sortBy(table, heading, column) {
    const down = heading.getAttribute("aria-sort") === "ascending" ||
      (!heading.hasAttribute("aria-sort") && heading.classList.contains("number") && column > 0);
    const numeric = heading.classList.contains("number"), body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      const one = content(a, column), other = content(b, column);
      if (one === "" || other === "") return (one === "") - (other === "");  // unknown ones last, either way
      return (down ? -1 : 1) * (numeric ? one - other : compare(one, other));
    });
    table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
    said.textContent = "Sorted by " + heading.textContent + (down ? ", descending" : ", ascending");
  }

  function csv(table) {
    // Text that a spreadsheet would run as a formula gets a quote before it; numbers stay as they are.
    const safe = (text) => (/^[=+\-@\t\r\n＝＋－＠]/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(text) ? "'" + text : text);
    const quoted = (text) => (/[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const head = [...table.tHead.rows[0].cells].map((cell) => quoted(safe(cell.textContent)));
    const lines = rows.map((row) => [...row.cells].map((_, column) => quoted(safe(content(row, column)))).join());
    return [head.join(), ...lines].join("\r\n") + "\r\n";
  }

  document.querySelectorAll("[data-table]").forEach((holder) => {
    const table = holder.querySelector("table"), field = holder.querySelector("input");
    const count = holder.querySelector(".count");
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      heading.querySelector("button")?.addEventListener("click", () => sortBy(table, heading, column));
    });
    function filter() {
      const wanted = field.value.trim().toLowerCase();
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        shown += !row.hidden;
      }
      count.textContent = shown + " of " + table.tBodies[0].rows.length + " rows";
    }
    if (field) field.addEventListener("input", filter);
    holder.querySelector("button[data-csv]")?.addEventListener("click", () => {
      // A byte order mark, so that spreadsheets read names in any script.
      const file = new Blob(["\ufeff" + csv(table)], { type: "text/csv;charset=utf-8" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = table.id + ".csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  });
})();
