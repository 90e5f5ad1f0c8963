// Draws the attention maps of #data: an array of {name, queries, keys, weights[layer][head][query][key]}.
"use strict";
const LEAST = 0.02; // weights below are not drawn
const SVG = "http://www.w3.org/2000/svg";
const {maps, colors} = JSON.parse(document.getElementById("data").textContent);
const [kind, layer, heads, queries, keys, lines, detail] =
  ["kind", "layer", "heads", "queries", "keys", "lines", "detail"].map(id => document.getElementById(id));
const shown = new Set(); // numbers of the heads that are drawn
let active = null; // {side: "queries" or "keys", number} of the token that is pointed at

const color = head => colors[head % colors.length];
const map = () => maps[kind.value];
const weights = head => map().weights[layer.value][head];

function option(select, value, text) {
  select.append(Object.assign(document.createElement("option"), {value, textContent: text}));
}

function chooseKind() {
  const {weights: layers, queries: rows, keys: columns} = map();
  const before = Number(layer.value);
  layer.replaceChildren();
  layers.forEach((_, number) => option(layer, number, String(number)));
  layer.value = Math.min(before, layers.length - 1);
  shown.clear();
  heads.querySelectorAll("label").forEach(label => label.remove());
  layers[0].forEach((_, head) => {
    shown.add(head);
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), {type: "checkbox", checked: true});
    box.addEventListener("change", () => {
      box.checked ? shown.add(head) : shown.delete(head);
      draw();
    });
    const swatch = Object.assign(document.createElement("span"), {className: "swatch"});
    swatch.style.background = color(head);
    label.append(box, swatch, String(head));
    // One head alone: a double click, as on the squares of other tools.
    label.addEventListener("dblclick", event => {
      event.preventDefault();
      heads.querySelectorAll("input").forEach((input, number) => {
        input.checked = number === head;
        input.checked ? shown.add(number) : shown.delete(number);
      });
      draw();
    });
    heads.append(label);
  });
  fill(queries, rows, "queries");
  fill(keys, columns, "keys");
  active = null;
  draw();
}

function fill(list, tokens, side) {
  list.replaceChildren(...tokens.map((token, number) => {
    const item = Object.assign(document.createElement("li"), {tabIndex: 0});
    const text = Object.assign(document.createElement("bdi"), {textContent: token});
    const bars = Object.assign(document.createElement("span"), {className: "bars"});
    item.append(...(side === "queries" ? [bars, " ", text] : [text, " ", bars]));
    for (const begin of ["pointerenter", "focus"]) item.addEventListener(begin, () => point({side, number}));
    for (const end of ["pointerleave", "blur"]) item.addEventListener(end, () => point(null));
    return item;
  }));
}

function point(token) {
  active = token;
  draw();
}

// The weights of a head that touch the active token, or all of them: [query, key, weight].
function links(head) {
  const found = [];
  weights(head).forEach((row, query) => row.forEach((weight, key) => {
    const touches = !active || (active.side === "queries" ? query === active.number : key === active.number);
    if (touches && weight >= LEAST) found.push([query, key, weight]);
  }));
  return found;
}

// The weight of a head between the active token and a token of the other side.
function weightBetween(head, number) {
  return active.side === "queries" ? weights(head)[active.number][number] : weights(head)[number][active.number];
}

function draw() {
  const chosen = [...shown].sort((a, b) => a - b);
  drawBars(chosen);
  drawLines(chosen); // after the bars, which make the columns wider
  describe(chosen);
}

// How much each token has to do with the active one: a bar for each head.
function drawBars(chosen) {
  for (const [list, side] of [[queries, "queries"], [keys, "keys"]]) {
    [...list.children].forEach((item, number) => {
      item.classList.toggle("active", Boolean(active) && active.side === side && active.number === number);
      const bars = item.querySelector(".bars");
      const other = active && active.side !== side;
      bars.replaceChildren(...chosen.map(head => { // always, so that nothing moves when they become visible
        const bar = document.createElement("i");
        bar.style.background = color(head);
        bar.style.opacity = other ? weightBetween(head, number) : 0;
        return bar;
      }));
    });
  }
}

function drawLines(chosen) {
  const height = queries.firstElementChild.offsetHeight;
  const width = lines.clientWidth;
  const drawn = document.createDocumentFragment();
  chosen.forEach((head, place) => {
    const shift = chosen.length > 1 ? (place / (chosen.length - 1) - 0.5) * height * 0.5 : 0;
    for (const [query, key, weight] of links(head)) {
      const line = document.createElementNS(SVG, "line");
      const ends = {x1: 0, y1: (query + 0.5) * height + shift, x2: width, y2: (key + 0.5) * height + shift};
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
      line.setAttribute("stroke", color(head));
      line.setAttribute("stroke-opacity", weight);
      line.setAttribute("stroke-width", 1 + 2 * weight);
      drawn.append(line);
    }
  });
  lines.replaceChildren(drawn);
}

// The same in words, for those who do not see the lines.
function describe(chosen) {
  if (!active) return;
  const {queries: rows, keys: columns} = map();
  const isQuery = active.side === "queries";
  const others = isQuery ? columns : rows;
  const means = others.map((token, number) => {
    const sum = chosen.reduce((total, head) => total + weightBetween(head, number), 0);
    return [token, sum / Math.max(1, chosen.length)];
  });
  const best = means.sort((a, b) => b[1] - a[1]).slice(0, 3).map(([token, mean]) => `“${token}” ${mean.toFixed(2)}`);
  const token = (isQuery ? rows : columns)[active.number];
  detail.textContent = isQuery
    ? `“${token}” attends most to ${best.join(", ")} (mean of the heads that are chosen).`
    : `“${token}” is attended to most by ${best.join(", ")} (mean of the heads that are chosen).`;
}

maps.forEach(({name}, number) => option(kind, number, name));
kind.addEventListener("change", chooseKind);
layer.addEventListener("change", draw);
addEventListener("resize", draw);
chooseKind();
