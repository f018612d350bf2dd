/** The drawing of a graph of ops, in layers by depth, and its nodes as a list of links. */

import { make } from "./dom.js";
import { inWords } from "./service.js";

/** @typedef {import("./types.d.ts").GraphDocument} GraphDocument */
/** @typedef {{ name: string, op: string, call: string, sources: string[], layer: number, row: number }} Box */

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 150;
const HEIGHT = 40;
const GAP_X = 60;
const GAP_Y = 18;
const MARGIN = 8;
const LONGEST = 19;

/**
 * Return the drawing of a graph with its list, or why there is none.
 *
 * @param {import("./service.js").Service} service
 * @param {string} name
 * @returns {Promise<HTMLElement>}
 */
export async function graphOf(service, name) {
  try {
    /** @type {GraphDocument} */
    const document = await service.get(`/v1/graphs/${encodeURIComponent(name)}`);
    const boxes = layered(document);
    const title = `${document.nodes.length} nodes between the inputs on the left and the outputs on the right`;
    return make("div", {}, make("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "drawing of the graph" }, drawing(boxes, title)), list(boxes));
  } catch (error) {
    return make("p", { class: "problem" }, inWords(error));
  }
}

/**
 * Return the inputs, the nodes and the outputs with their places: each is one layer after the last of its sources.
 *
 * @param {GraphDocument} document
 * @returns {Box[]}
 */
function layered(document) {
  /** @type {Map<string, Box>} */
  const boxes = new Map();
  /** @type {number[]} */
  const rows = [];
  /** @type {(key: string, box: Omit<Box, "layer" | "row">, layer: number) => void} */
  const place = (key, box, layer) => {
    const row = rows[layer] ?? 0;
    rows[layer] = row + 1;
    boxes.set(key, { ...box, layer, row });
  };
  for (const slot of document.inputs) {
    const name = typeof slot === "string" ? slot : slot.name;
    place(name, { name, op: "", call: "an input", sources: [] }, 0);
  }
  /** @type {(sources: string[]) => number} */
  const after = (sources) => 1 + Math.max(0, ...sources.map((source) => boxes.get(source)?.layer ?? 0));
  for (const { name, op, inputs } of document.nodes) {
    const given = Object.entries(inputs).map(([slot, source]) => [Array.isArray(inputs) ? "" : `${slot}=`, source]);
    const call = given.map(([slot, source]) => `${slot}${typeof source === "string" ? source : "constant"}`).join(", ");
    const sources = given.flatMap(([, source]) => (typeof source === "string" ? [whole(source)] : []));
    place(name, { name, op, call: `(${call})`, sources }, after(sources));
  }
  const last = rows.length;
  for (const [name, source] of Object.entries(document.outputs)) {
    place(`output ${name}`, { name, op: "", call: `the output ${source}`, sources: [whole(source)] }, last);
  }
  return [...boxes.values()];
}

/**
 * Return the node of one of its outputs.
 *
 * @param {string} source
 */
function whole(source) {
  return source.split(".")[0] ?? source;
}

/**
 * @param {Box[]} boxes
 * @param {string} title
 * @returns {SVGElement}
 */
function drawing(boxes, title) {
  const rows = Math.max(...boxes.map((box) => box.row)) + 1;
  const width = (Math.max(...boxes.map((box) => box.layer)) + 1) * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN;
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
  const counts = boxes.reduce((found, box) => found.set(box.layer, (found.get(box.layer) ?? 0) + 1), new Map());
  /** @type {(box: Box) => [number, number]} */
  const corner = (box) => [MARGIN + box.layer * (WIDTH + GAP_X), MARGIN + (box.row + (rows - counts.get(box.layer)) / 2) * (HEIGHT + GAP_Y)];
  const svg = element("svg", { role: "img", width, height, viewBox: `0 0 ${width} ${height}` }, element("title", {}, title));
  for (const box of boxes) {
    const [x, y] = corner(box);
    for (const source of boxes.filter((each) => box.sources.includes(each.name) && each.layer < box.layer)) {
      const [left, top] = corner(source);
      const [from, to, middle] = [left + WIDTH, x, top + HEIGHT / 2];
      const bend = (to - from) / 2;
      svg.append(element("path", { class: "edge", d: `M${from} ${middle}C${from + bend} ${middle} ${to - bend} ${y + HEIGHT / 2} ${to} ${y + HEIGHT / 2}` }));
    }
  }
  for (const box of boxes) {
    const [x, y] = corner(box);
    const middle = x + WIDTH / 2;
    const drawn = element("g", { class: box.op ? "node" : "slot" }, element("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 8 }), element("text", { x: middle, y: y + (box.op ? 17 : 25), class: "name" }, short(box.name)));
    if (box.op) {
      drawn.append(element("text", { x: middle, y: y + 32 }, short(box.op)));
      // The links of the keyboard are those of the list.
      drawn.addEventListener("click", () => location.assign(pageOf(box.op)));
    }
    svg.append(drawn);
  }
  return svg;
}

/**
 * @param {Box[]} boxes
 * @returns {HTMLElement}
 */
function list(boxes) {
  const items = boxes.map((box) => make("li", {}, make("strong", {}, box.name), box.op ? [" = ", make("a", { href: pageOf(box.op) }, box.op), box.call] : `: ${box.call}`));
  return make("details", {}, make("summary", {}, "The nodes as a list"), make("ol", { class: "nodes" }, ...items));
}

/** @param {string} op */
function pageOf(op) {
  return `/explore/${encodeURIComponent(op)}`;
}

/** @param {string} text */
function short(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
function element(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}
