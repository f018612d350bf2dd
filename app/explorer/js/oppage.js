/** The page of one op: its plot, its verdict, what to try, and its text. */

import { docText } from "./doctext.js";
import { make } from "./dom.js";
import { graphOf } from "./graph.js";
import { chips } from "./list.js";
import { Plot } from "./plot.js";
import { inWords } from "./service.js";
import { Settings } from "./settings.js";
import { Try } from "./try.js";
import { Verdict } from "./verdict.js";

/** @typedef {import("./types.d.ts").Contract} Contract */

/**
 * Return the elements of the page, and a function that draws the plot.
 *
 * @param {import("./service.js").Service} service
 * @param {import("./address.js").Address} address
 * @param {string} op
 * @returns {Promise<{ elements: HTMLElement[], draw: () => void }>}
 */
export async function opPage(service, address, op) {
  /** @type {Contract} */
  const contract = await service.get(`/v1/ops/${encodeURIComponent(op)}`);
  const settings = new Settings(contract, address);
  const plot = contract.claim && settings.floats.length ? new Plot(service, contract, settings) : null;
  const verdict = plot ? new Verdict(service, contract, settings, (finding) => plot.focus(finding)) : null;
  const trial = new Try(service, contract, settings);
  const of = contract.of ? make("p", {}, "A derivative of ", make("a", { href: `/explore/${contract.of}` }, contract.of), ".") : null;
  const elements = [
    make("header", { class: "op-head" }, make("h1", {}, contract.name), make("p", { class: "lead" }, contract.summary), make("p", { class: "chips" }, ...chips(contract), make("span", { class: "chip" }, `batching: ${contract.batching}`), make("span", { class: "chip" }, contract.dtypes.join(", ")))),
    ...(of ? [of] : []),
    ...(contract.stale ? [make("p", { class: "problem" }, contract.reason ?? "stale")] : []),
    ...(contract.nodes ? [section("graph", "Graph", await graphOf(service, contract.name))] : []),
    settings.root,
    leftOut(address),
    plot ? section("plot", "Plot", plot.root) : make("p", {}, "This op has no derivative, so there is nothing to plot or to check."),
    ...(verdict ? [section("verdict", "Verdict", verdict.root)] : []),
    section("try", "Try it", trial.root),
    section("text", "Its page", ...docText(contract.doc), source(contract), file(service, contract)),
  ];
  return { elements, draw: () => void plot?.draw() };
}

/**
 * Return the place of the note that says which fields are too large for the address.
 *
 * @param {import("./address.js").Address} address
 */
function leftOut(address) {
  const note = make("p", { class: "note", role: "status", hidden: true });
  const show = () => {
    const names = address.leftOut.map(({ name, size }) => `${name.replace(/^t\./, "")} (${Math.ceil(size / 1000)} kB)`);
    note.hidden = !names.length;
    note.textContent = `Too large for the address: ${names.join(", ")}. A reload keeps it; whoever opens a link to this page does not have it.`;
  };
  address.addEventListener("written", show);
  show();
  return note;
}

/**
 * @param {string} id
 * @param {string} title
 * @param {...(HTMLElement | string)} children
 * @returns {HTMLElement}
 */
function section(id, title, ...children) {
  return make("section", { id, "aria-labelledby": `${id}-title`, class: "part" }, make("h2", { id: `${id}-title` }, title), ...children);
}

/**
 * Return the file of the op, which is read when it is opened.
 *
 * @param {import("./service.js").Service} service
 * @param {Contract} contract
 */
function file(service, contract) {
  const place = make("pre", { class: "code file", tabindex: "0" }, "Loading…");
  const details = make("details", {}, make("summary", {}, "The file"), place);
  const read = async () => {
    if (!details.open) return;
    try {
      place.textContent = await service.text(`/v1/ops/${encodeURIComponent(contract.name)}/source`);
    } catch (error) {
      place.textContent = inWords(error);
    }
  };
  details.addEventListener("toggle", read, { once: true });
  return details;
}

/** @param {Contract} contract */
function source({ source: text, doc }) {
  // Many docstrings end with it.
  return !text || doc.includes("Source: ") ? "" : make("p", {}, "Source: ", /^https?:/.test(text) ? make("a", { href: text, rel: "noreferrer" }, text) : text);
}
