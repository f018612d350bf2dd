/** A form for the attributes of an op, made from their JSON Schema. */

import { choice, line, make } from "./dom.js";
import { decimal } from "./entered.js";

/** @typedef {import("./types.d.ts").AttrSchema} AttrSchema */

/**
 * Return the attributes that texts stand for, by their schemas; raise an error for a text that is no number where one is
 * expected. The service refuses other values in its own words.
 *
 * @param {Record<string, AttrSchema>} schemas
 * @param {Record<string, string>} texts
 * @returns {Record<string, unknown>}
 */
export function attributesOf(schemas, texts) {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, text] of Object.entries(texts)) {
    const schema = schemas[name];
    if (!schema) continue;
    if (schema.enum) found[name] = schema.enum.find((value) => String(value) === text) ?? text;
    else if (schema.type === "boolean") found[name] = text === "true" ? true : text === "false" ? false : text;
    else if (schema.type === "number" || schema.type === "integer") found[name] = decimal(`attrs.${name}`, text);
    else found[name] = text;
  }
  return found;
}

/**
 * Make a field for each attribute.
 *
 * @param {Record<string, AttrSchema>} schemas
 * @param {Record<string, string>} texts
 * @param {(name: string, text: string | null) => void} changed gets null for the default
 * @returns {HTMLElement[]}
 */
export function attributeFields(schemas, texts, changed) {
  return Object.entries(schemas).map(([name, schema]) => {
    const byDefault = String(schema.default ?? "");
    const set = (/** @type {string} */ text) => changed(name, text === byDefault ? null : text);
    const options = schema.enum ?? (schema.type === "boolean" ? [false, true] : null);
    const value = texts[name] ?? byDefault;
    const field = options
      ? choice(name, options.map(String), value, set)
      : line(name, value, set, { inputmode: schema.type === "string" ? "text" : "decimal", size: 8 });
    if (schema.description) {
      field.title = schema.description;
      field.append(make("span", { class: "hidden" }, schema.description));
    }
    return field;
  });
}
