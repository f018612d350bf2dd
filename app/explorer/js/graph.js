/** The drawing of a graph of ops, in layers by depth, and its nodes as a list of links. */

import { pageOf } from "./address.js";
import { make } from "./dom.js";
import { inWords } from "./service.js";

/** @typedef {import("./types.d.ts").GraphDocument} GraphDocument */
/** @typedef {import("./types.d.ts").GraphNode} GraphNode */
/** @typedef {{ name: string, op: string, call: string, fixed: string[], sources: string[], layer: number, row: number }} Box */

const SVG = "http://www.w3.org/2000/svg";
const GAP_X = 40;
const GAP_Y = 18;
const MARGIN = 8;
// How far below its ends an edge passes that skips layers, as a multiple of the height of a box.
const DROP = 1;
const LINE = 15;
const PADDING = 10;
const CHARACTER = 7.8;
const LONGEST = 21;
// The most constants and attributes that are drawn in a box; the list has all of them.
const FIXED = 3;
// A wide drawing shrinks to the width of the page, but no further than to this fraction: then it scrolls.
const SMALLEST = 0.7;

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
    place(name, { name, op: "", call: "an input", fixed: [], sources: [] }, 0);
  }
  /** @type {(sources: string[]) => number} */
  const after = (sources) => 1 + Math.max(0, ...sources.map((source) => boxes.get(source)?.layer ?? 0));
  for (const node of document.nodes) {
    const given = inputsOf(node);
    const sources = given.flatMap(({ source }) => (typeof source === "string" ? [whole(source)] : []));
    const fixed = given.filter(({ source }) => typeof source !== "string").concat(attributesOf(node));
    const call = [...given, ...attributesOf(node)].map(({ slot, source }) => `${slot && `${slot}=`}${textOf(source, 80)}`).join(", ");
    const lines = fixed.map(({ slot, source }) => `${slot && `${slot} = `}${textOf(source, 12)}`);
    place(node.name, { name: node.name, op: node.op, call: `(${call})`, fixed: lines, sources }, after(sources));
  }
  const last = rows.length;
  for (const [name, source] of Object.entries(document.outputs)) {
    place(`output ${name}`, { name, op: "", call: `the output ${source}`, fixed: [], sources: [whole(source)] }, last);
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
  const texts = new Map(boxes.map((box) => [box, textsOf(box)]));
  const lines = (/** @type {Box} */ box) => texts.get(box) ?? [];
  const widths = Array.from({ length: Math.max(...boxes.map((box) => box.layer)) + 1 }, (_, layer) =>
    Math.max(...boxes.filter((box) => box.layer === layer).flatMap((box) => lines(box).map((text) => text.length * CHARACTER + 2 * PADDING))),
  );
  const lefts = widths.map((_, layer) => MARGIN + widths.slice(0, layer).reduce((sum, width) => sum + width + GAP_X, 0));
  const tall = Math.max(2, ...boxes.map((box) => lines(box).length)) * LINE + PADDING;
  const width = (lefts.at(-1) ?? 0) + (widths.at(-1) ?? 0) + MARGIN;
  const height = rows * (tall + GAP_Y) - GAP_Y + 2 * MARGIN + (hasSkips(boxes) ? (DROP * 0.75 - 0.5) * tall : 0);
  const counts = boxes.reduce((found, box) => found.set(box.layer, (found.get(box.layer) ?? 0) + 1), new Map());
  /** @type {(box: Box) => [number, number]} */
  const corner = (box) => [lefts[box.layer] ?? 0, MARGIN + (box.row + (rows - counts.get(box.layer)) / 2) * (tall + GAP_Y)];
  const svg = element("svg", { role: "img", width, height, viewBox: `0 0 ${width} ${height}` }, element("title", {}, title));
  svg.style.minWidth = `${Math.round(width * SMALLEST)}px`;
  for (const box of boxes) {
    const [x, y] = corner(box);
    for (const source of boxes.filter((each) => box.sources.includes(each.name) && each.layer < box.layer)) {
      const [left, top] = corner(source);
      const [from, to, middle] = [left + (widths[source.layer] ?? 0), x, top + tall / 2];
      const bend = (to - from) / 2;
      // An edge that skips layers passes below their boxes.
      const low = box.layer - source.layer > 1 ? DROP * tall : 0;
      svg.append(element("path", { class: "edge", d: `M${from} ${middle}C${from + bend} ${middle + low} ${to - bend} ${y + tall / 2 + low} ${to} ${y + tall / 2}` }));
    }
  }
  for (const box of boxes) {
    const [x, y] = corner(box);
    const wide = widths[box.layer] ?? 0;
    const own = lines(box);
    const first = y + (tall - own.length * LINE) / 2 + LINE - 4;
    const drawn = element("g", { class: box.op ? "node" : "slot" }, element("rect", { x, y, width: wide, height: tall, rx: 8 }));
    own.forEach((text, i) => drawn.append(element("text", { x: x + wide / 2, y: first + i * LINE, ...(i ? {} : { class: "name" }) }, text)));
    // The links of the keyboard are those of the list.
    if (box.op) drawn.addEventListener("click", () => location.assign(pageOf(box.op)));
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

/**
 * Return whether an edge skips a layer.
 *
 * @param {Box[]} boxes
 */
function hasSkips(boxes) {
  return boxes.some((box) => boxes.some((each) => box.sources.includes(each.name) && box.layer - each.layer > 1));
}

/**
 * Return the lines of text in a box.
 *
 * @param {Box} box
 * @returns {string[]}
 */
function textsOf({ name, op, fixed }) {
  const drawn = fixed.length > FIXED ? [...fixed.slice(0, FIXED - 1), "…"] : fixed;
  return [name, ...(op ? [op] : []), ...drawn].map((text) => short(text, LONGEST));
}

/**
 * Return where each input of a node comes from; inputs in order have no slot.
 *
 * @param {GraphNode} node
 * @returns {{ slot: string, source: unknown }[]}
 */
function inputsOf({ inputs }) {
  return Object.entries(inputs).map(([slot, source]) => ({ slot: Array.isArray(inputs) ? "" : slot, source }));
}

/**
 * @param {GraphNode} node
 * @returns {{ slot: string, source: unknown }[]}
 */
function attributesOf({ attrs }) {
  return Object.entries(attrs ?? {}).map(([slot, value]) => ({ slot, source: { constant: value } }));
}

/**
 * Return a source as text: a node, the value of a constant, or the attribute of the graph that has it.
 *
 * @param {any} source
 * @param {number} length
 */
function textOf(source, length) {
  if (typeof source === "string") return source;
  const value = source.constant?.attr ?? source.constant?.data ?? source.constant;
  return short(typeof value === "string" ? value : JSON.stringify(value).replaceAll(",", ", "), length);
}

/**
 * @param {string} text
 * @param {number} length
 */
function short(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
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
