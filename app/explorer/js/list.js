/** The page of all ops: a search, and for each op what it is and a sketch of it. */

import { pageOf } from "./address.js";
import { choice, fill, line, make } from "./dom.js";
import { sketch } from "./sketch.js";

/** @typedef {import("./types.d.ts").OpSummary} OpSummary */

/**
 * Return the elements of the page.
 *
 * @param {import("./service.js").Service} service
 * @param {import("./address.js").Address} address
 * @returns {Promise<HTMLElement[]>}
 */
export async function listPage(service, address) {
  const { ops } = /** @type {{ ops: OpSummary[] }} */ (await service.get("/v1/ops"));
  const list = make("ul", { class: "ops" });
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
    fill(list, ...shown.map((each) => each.card));
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
  return [
    make("h1", {}, "Ops and their gradients"),
    make("p", { class: "lead" }, "See each function, its derivatives as their author wrote them, and whether they are right."),
    make("div", { class: "fields", role: "search" }, search, field("mechanism", (op) => op.mechanism), field("claim", claimOf), field("state", stateOf)),
    count,
    list,
  ];
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
 * @param {OpSummary} op
 * @returns {HTMLLIElement}
 */
function card(service, op) {
  if (!op.available) {
    return make("li", { class: "card lost" }, make("h2", {}, op.name), make("p", { class: "problem" }, op.reason ?? "unavailable"));
  }
  return make(
    "li",
    { class: "card" },
    sketch(service, op.name),
    make("h2", {}, make("a", { href: pageOf(op.name) }, op.name)),
    make("p", {}, op.summary),
    op.stale && make("p", { class: "problem" }, op.reason ?? "stale"),
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
