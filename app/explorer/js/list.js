/** The page of all ops: a search, and for each op what it is and a sketch of it. */

import { pageOf } from "./address.js";
import { choice, fill, line, make } from "./dom.js";
import { lastCheck } from "./lastcheck.js";
import { sketch } from "./sketch.js";

/** @typedef {import("./types.d.ts").OpSummary} OpSummary */
/** @typedef {import("./types.d.ts").ListedOp} ListedOp */

/** The groups in their order, each with its title and what its ops are. */
const GROUPS = /** @type {Record<import("./types.d.ts").Group, [string, string]>} */ ({
  yours: ["Yours", "The ops of plug-in folders."],
  surrogate: ["Surrogate gradients", "The gradient is not the derivative, on purpose."],
  numerics: ["Numerics", "The gradient is the derivative, written to be accurate."],
  native: ["C++", "The op is a kernel in C++."],
  glue: ["Glue", "TensorFlow's own ops, with which graphs join the others."],
});
// How often the last verdicts are read again.
const REFRESH_MS = 20_000;

const ABOUT = [
  "This service evaluates functions of tensors (ops) and their gradients over HTTP.",
  "Open an op to plot it beside its numeric derivatives, to evaluate it at numbers of yours, and to check it;",
  "its page has the request in five languages.",
  "The claim of an op says what its gradient is meant to be: the derivative, a formula, or the derivative of another",
  "function (a surrogate). The mechanism says how its author wrote the gradient.",
].join(" ");

/**
 * Return the elements of the page.
 *
 * @param {import("./service.js").Service} service
 * @param {import("./address.js").Address} address
 * @returns {Promise<HTMLElement[]>}
 */
export async function listPage(service, address) {
  const { ops } = /** @type {{ ops: ListedOp[] }} */ (await service.get("/v1/ops"));
  const groups = Object.entries(GROUPS).map(([name, [title, about]]) => ({ name, ...groupOf(name, title, about) }));
  const count = make("p", { class: "muted", role: "status" });
  const cards = ops.map((op) => ({ op, card: card(service, op) }));
  const show = () => {
    const text = address.get("search").toLowerCase();
    const fits = (/** @type {OpSummary} */ op) =>
      `${op.name} ${op.summary}`.toLowerCase().includes(text) &&
      ["", op.mechanism].includes(address.get("mechanism")) &&
      ["", claimOf(op)].includes(address.get("claim")) &&
      ["", stateOf(op)].includes(address.get("state"));
    const shown = cards.filter(({ op }) => fits(op));
    for (const { name, section, list } of groups) {
      const own = shown.filter(({ op }) => op.group === name);
      section.hidden = !own.length;
      fill(list, ...own.map((each) => each.card));
    }
    count.textContent = shown.length === ops.length ? `${ops.length} ops` : `${shown.length} of ${ops.length} ops`;
  };
  const field = (/** @type {string} */ name, /** @type {(op: OpSummary) => string} */ of) => {
    const options = [...new Set(ops.map(of))].filter(Boolean).sort();
    return choice(name, [{ value: "", text: "any" }, ...options], address.get(name), (value) => {
      address.set({ [name]: value || null });
      show();
    });
  };
  const search = line("search", address.get("search"), () => {}, { type: "search", size: 24 });
  search.addEventListener("input", (event) => {
    address.set({ search: /** @type {HTMLInputElement} */ (event.target).value || null });
    show();
  });
  show();
  refresh(service, cards);
  return [
    make("h1", {}, "Ops and their gradients"),
    make("p", { class: "lead" }, "See each function, its derivatives as their author wrote them, and whether they are right."),
    make("p", { class: "muted" }, ABOUT),
    make("div", { class: "fields", role: "search" }, search, field("mechanism", (op) => op.mechanism), field("claim", claimOf), field("state", stateOf)),
    make("ul", { class: "legend" }, make("li", {}, make("span", { class: "swatch own" }), "f"), make("li", {}, make("span", { class: "swatch first" }), "f′, each in its own scale")),
    count,
    ...groups.map(({ section }) => section),
  ];
}

/**
 * Return the section of a group, and its list.
 *
 * @param {string} name
 * @param {string} title
 * @param {string} about
 */
function groupOf(name, title, about) {
  const list = make("ul", { class: "ops" });
  const heading = make("h2", { id: `group-${name}` }, title, " ", make("span", { class: "muted small" }, about));
  return { list, section: make("section", { class: "group", "aria-labelledby": `group-${name}` }, heading, list) };
}

/**
 * Show the last verdicts as they are now, as long as the page is in view.
 *
 * @param {import("./service.js").Service} service
 * @param {{ op: ListedOp, card: HTMLElement }[]} cards
 */
function refresh(service, cards) {
  const read = async () => {
    if (document.hidden || service.isAway) return;
    const { ops } = /** @type {{ ops: ListedOp[] }} */ (await service.get("/v1/ops"));
    const lasts = new Map(ops.map((op) => [op.name, op.last_check]));
    for (const each of cards) {
      const place = each.card.querySelector(".checked");
      if (place) fill(place, ...lastCheck(lasts.get(each.op.name)));
    }
  };
  // What is shown stays until the service answers.
  const attempt = () => read().catch(() => {});
  const wait = () => setTimeout(() => attempt().finally(wait), REFRESH_MS);
  wait();
  document.addEventListener("visibilitychange", attempt);
}

/** @param {OpSummary} op */
function claimOf(op) {
  return op.claim ? op.claim.first : "";
}

/** @param {OpSummary} op */
function stateOf(op) {
  return op.available ? (op.stale ? "stale" : "available") : "unavailable";
}

/**
 * @param {import("./service.js").Service} service
 * @param {ListedOp} op
 * @returns {HTMLLIElement}
 */
function card(service, op) {
  if (!op.available) {
    return make("li", { class: "card lost" }, make("h3", {}, op.name), make("p", { class: "problem" }, op.reason ?? "unavailable"));
  }
  return make(
    "li",
    { class: "card" },
    sketch(service, op.name),
    make("h3", {}, make("a", { href: pageOf(op.name) }, op.name)),
    make("p", {}, op.summary),
    op.stale && make("p", { class: "problem" }, op.reason ?? "stale"),
    make("p", { class: "checked muted small" }, ...lastCheck(op.last_check)),
    make("p", { class: "chips" }, ...chips(op)),
  );
}

/**
 * Return short words on an op.
 *
 * @param {OpSummary} op
 * @returns {HTMLElement[]}
 */
export function chips(op) {
  const { claim } = op;
  const words = [op.mechanism];
  if (claim) {
    words.push(`first order: ${claim.first}`, `second: ${claim.second ?? "none"}`);
    if (!claim.linear) words.push("not linear in the cotangent");
  }
  return words.filter(Boolean).map((word) => make("span", { class: "chip" }, word));
}
