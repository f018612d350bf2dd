/** The text of an op, as it stands in its docstring: paragraphs, formulas and `code`. */

import { make } from "./dom.js";

/**
 * Return the elements of a docstring.
 *
 * @param {string} doc
 * @returns {HTMLElement[]}
 */
export function docText(doc) {
  return doc
    .split(/\n\s*\n/)
    .filter((part) => part.trim())
    .map((part) => {
      const lines = part.split("\n");
      if (lines.every((each) => /^\s{4,}/.test(each))) {
        const indent = Math.min(...lines.map((each) => each.search(/\S/)).filter((each) => each >= 0));
        return make("pre", { class: "code", tabindex: "0" }, lines.map((each) => each.slice(indent)).join("\n"));
      }
      if (lines.every((each) => /^\s*[-*] /.test(each) || /^\s{2,}/.test(each))) {
        const items = part.split(/\n(?=\s*[-*] )/);
        return make("ul", {}, items.map((item) => make("li", {}, ...inline(item.replace(/^\s*[-*] /, "")))));
      }
      return make("p", {}, ...inline(part));
    });
}

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function inline(text) {
  const joined = text.replace(/\s*\n\s*/g, " ");
  return joined.split(/(``[^`]+``|`[^`]+`|https?:\/\/[^\s)]+)/).map((part) => {
    if (part.startsWith("`")) return make("code", {}, part.replaceAll("`", ""));
    if (/^https?:/.test(part)) return make("a", { href: part, rel: "noreferrer" }, part);
    return part;
  });
}
