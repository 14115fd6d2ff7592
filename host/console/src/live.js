// Keeps the element `present` of a page up to date: loads the page again after an event of the host, and replaces the
// element. Some facts change without an entry in the audit log, so the page is also loaded once a minute. Without this
// script, the page stays as it was loaded.
"use strict";

const button = document.getElementById("live");
// The pause after loading is so many times as long as the loading, but at most a minute, so that a page costs the host
// little.
const SHARE = 200;
const MINUTE = 60_000;
// In milliseconds: the timeout of loading, and the shortest pause after a failure.
const PATIENCE = 30_000;
const AGAIN = 5_000;
let source = null;
let isLoading = false;
let isBehind = false;

/** Returns true if the focus or a selection is in this part: it is replaced only after that has ended. */
function isInUse(part) {
  const selection = document.getSelection();
  const isSelected = !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(part);
  return isSelected || part.contains(document.activeElement);
}

/** Applies the open details and the scroll positions of the old part to the new one. */
function keepView(from, to) {
  const each = (query, set) => {
    const olds = from.querySelectorAll(query);
    to.querySelectorAll(query).forEach((now, place) => olds[place] && set(now, olds[place]));
  };
  each("details", (now, old) => (now.open = old.open));
  each(".scroll", (now, old) => (now.scrollLeft = old.scrollLeft));
}

async function update() {
  const part = document.getElementById("present");
  if (isLoading || isInUse(part)) {
    isBehind = true;
    return;
  }
  [isLoading, isBehind] = [true, false];
  const begun = performance.now();
  let least = 0;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 401) return end("The session has ended.");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("present");
    if (!fresh) throw new Error(`status ${answer.status}`);
    if (!source || isInUse(part)) isBehind = true;
    else {
      part.replaceWith(fresh);
      keepView(part, fresh);
    }
  } catch {
    [isBehind, least] = [true, AGAIN];
  } finally {
    setTimeout(catchUp, Math.max(least, Math.min(SHARE * (performance.now() - begun), MINUTE)));
  }
}

function catchUp() {
  isLoading = false;
  if (isBehind && source) update();
}

function begin() {
  source = new EventSource(button.dataset.events);
  source.addEventListener("changed", update);
  source.addEventListener("open", () => isBehind && update());
  source.addEventListener("error", () => source?.readyState === EventSource.CLOSED && end("The host sends no events."));
}

function pause() {
  source?.close();
  source = null;
}

function end(reason) {
  pause();
  button.disabled = true;
  button.title = reason;
  button.setAttribute("aria-pressed", "false");
}

/** Connects while the button is pressed and the page is visible: a browser has few connections to one host. */
function follow() {
  const wanted = button.getAttribute("aria-pressed") === "true" && !document.hidden && !button.disabled;
  if (wanted && !source) begin();
  if (!wanted) pause();
}

button.setAttribute("aria-pressed", String(sessionStorage.getItem("live") !== "off"));
button.hidden = false;
button.addEventListener("click", () => {
  const isOn = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(isOn));
  sessionStorage.setItem("live", isOn ? "on" : "off");
  follow();
});
document.addEventListener("visibilitychange", follow);
setInterval(() => source && update(), MINUTE);
for (const left of ["focusout", "selectionchange"]) {
  document.addEventListener(left, () => setTimeout(() => isBehind && !isLoading && source && update()));
}
follow();
