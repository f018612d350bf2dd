/** The start of both pages: it finds the page in the address, and shows when the service is away or needs a key. */

import { Address, opOfPage } from "./address.js";
import { fill, make } from "./dom.js";
import { listPage } from "./list.js";
import { opPage } from "./oppage.js";
import { inWords, Service, ServiceError } from "./service.js";

const service = new Service();
const address = new Address();
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const away = /** @type {HTMLElement} */ (document.getElementById("away"));
const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("key"));
// What a page that could not be shown does when the service answers again.
let back = () => {};

/** Show the page of the address. */
async function show() {
  const op = opOfPage();
  document.title = op ? `${op} – Pullback explorer` : "Pullback explorer";
  try {
    if (op) {
      const page = await opPage(service, address, op);
      fill(main, page.elements);
      page.draw();
    } else {
      fill(main, await listPage(service, address));
    }
    back = () => {};
  } catch (error) {
    const links = make("p", {}, make("a", { href: "/explore" }, "All ops"));
    fill(main, make("h1", {}, op || "Ops"), make("p", { class: "problem", role: "alert" }, inWords(error)), links);
    if (!(error instanceof ServiceError)) back = () => void show();
  }
}

service.addEventListener("away", () => {
  away.hidden = false;
  away.textContent = "The service does not answer. This page goes on as soon as it does.";
});
service.addEventListener("back", () => {
  away.hidden = true;
  back();
});
service.addEventListener("locked", (event) => {
  const reason = /** @type {CustomEvent<string>} */ (event).detail;
  const input = make("input", { type: "password", autocomplete: "off", required: true, size: 40 });
  const form = make(
    "form",
    { method: "dialog" },
    make("h2", { id: "key-title" }, "This service needs a key"),
    reason && make("p", { class: "problem" }, reason),
    make("label", { class: "field" }, make("span", {}, "key"), input),
    make("p", { class: "muted small" }, "This tab keeps it until you close it."),
    make("button", { type: "submit", class: "primary" }, "Use it"),
  );
  form.addEventListener("submit", () => service.unlock(input.value.trim()));
  dialog.addEventListener("cancel", (cancelled) => cancelled.preventDefault());
  fill(dialog, form);
  dialog.showModal();
});

service.watch();
await show();
