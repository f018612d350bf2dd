/** Making elements. Text is always text: nothing here reads markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element. A property that starts with "on" is a listener, `class` and others are attributes; `true` is an
 * attribute without a value, and `false`, `null` and `undefined` leave one out.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  append(element, ...children);
  return element;
}

/**
 * Add children to an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function append(element, ...children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/**
 * Replace the children of an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, ...children);
}

/**
 * Make a labelled choice from a list of values.
 *
 * @param {string} label
 * @param {readonly (string | { value: string, text: string })[]} options
 * @param {string} value
 * @param {(value: string) => void} changed
 * @returns {HTMLLabelElement}
 */
export function choice(label, options, value, changed) {
  const select = make("select", { onchange: () => changed(select.value) });
  for (const option of options) {
    const { value: own, text } = typeof option === "string" ? { value: option, text: option } : option;
    select.append(make("option", { value: own, selected: own === value }, text));
  }
  return make("label", { class: "field" }, make("span", {}, label), select);
}

/**
 * Make a labelled line of text, which is read when it is left or Enter is pressed.
 *
 * @param {string} label
 * @param {string} value
 * @param {(value: string) => void} changed
 * @param {Record<string, unknown>} [properties]
 * @returns {HTMLLabelElement}
 */
export function line(label, value, changed, properties = {}) {
  const input = make("input", { value, spellcheck: "false", autocomplete: "off", ...properties });
  input.addEventListener("change", () => changed(input.value));
  return make("label", { class: "field" }, make("span", {}, label), input);
}
