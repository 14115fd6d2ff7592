// Drives the console in a real browser, as people do: node browser.mjs SERVICES CHROMIUM < task.json
//
// The task has the links, the path of an approval that waits, a call with a token, and a directory for screenshots or none.
// What is wrong goes to standard output as a list of sentences; an empty list means that nothing is.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [services, chromium] = process.argv.slice(2);
const require = createRequire(`${services}/package.json`);
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const task = JSON.parse(readFileSync(0, "utf8"));
const origin = new URL(task.open).origin;
const wrong = [];

const WIDE = { width: 1280, height: 900 };
const PHONE = { width: 380, height: 800 };
// The most pages that are visited: those of one kind have as many links as there are calls.
const OF_A_KIND = 2;

const browser = await puppeteer.launch({
  executablePath: chromium,
  // The browser of a test runs as whoever runs the test, who may be root; it only loads pages of this server.
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

/** Opens a page in a session of its own, and reports what a browser complains about. */
async function session(link) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.complaint = (message) => wrong.push(`${page.url()}: ${message.type()}: ${message.text()}`);
  page.on("console", page.complaint);
  page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error.message}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) wrong.push(`${page.url()}: requests ${request.url()}`);
  });
  await page.setViewport(WIDE);
  await page.goto(link);
  if (new URL(page.url()).pathname !== "/console") wrong.push(`the link leads to ${page.url()}`);
  return page;
}

/** The kind of a page: its path without names, ids and values. */
function kind(path) {
  const url = new URL(path, origin);
  const parts = url.pathname.split("/").slice(0, 3);
  const deeper = url.pathname.split("/").length > 3 ? "/*" : "";
  return `${parts.join("/")}${deeper}?${[...url.searchParams.keys()].sort().join("&")}`;
}

async function accessible(page, at) {
  // As a part of the browser, which the policy of the page does not concern.
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, help, nodes } of found.violations) {
    wrong.push(`${at}: axe: ${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
  }
  return found.passes.length;
}

/** The number of headings and rows. */
const shown = (page) => page.$$eval("h1, h2, tr", (all) => all.length);

async function crawl(page) {
  const [seen, kinds, queue] = [new Set(), new Map(), ["/console"]];
  let [rules, hostile] = [0, 0];
  while (queue.length > 0) {
    const path = queue.shift();
    const of = kind(path);
    if (seen.has(path) || (kinds.get(of) ?? 0) >= OF_A_KIND) continue;
    seen.add(path);
    kinds.set(of, (kinds.get(of) ?? 0) + 1);
    const response = await page.goto(origin + path);
    if (response.status() !== 200) wrong.push(`${path}: status ${response.status()}`);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      for (const viewport of [WIDE, PHONE]) {
        await page.setViewport(viewport);
        const at = `${path} (${scheme}, ${viewport.width} px)`;
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        if (width > viewport.width) wrong.push(`${at}: it is ${width} px wide`);
        rules += await accessible(page, at);
      }
    }
    // A text from elsewhere makes no element.
    const made = await page.$$eval("[data-hostile], [onclick], main script", (all) => all.length);
    if (made > 0) wrong.push(`${path}: a text makes ${made} elements`);
    if (await page.$eval("main", (main, text) => main.textContent.includes(text), task.hostile)) hostile += 1;
    const parts = await shown(page);
    await page.setJavaScriptEnabled(false);
    await page.goto(origin + path);
    const plain = await shown(page);
    if (plain !== parts) wrong.push(`${path}: ${plain} headings and rows without scripts, ${parts} with them`);
    await page.setJavaScriptEnabled(true);
    const links = await page.$$eval("a[href]", (all) => all.map((link) => link.getAttribute("href")));
    queue.push(...links.filter((link) => link.startsWith("/console")));
  }
  await page.setViewport(WIDE);
  return { pages: seen.size, kinds: [...kinds.keys()].sort(), rules, hostile };
}

/** The name of the element that has the focus. */
const focused = (page) => page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");

/** Presses Tab until an element with this text, or a field of this name, has the focus. */
async function tabTo(page, wanted) {
  const field = (page) => page.evaluate(() => document.activeElement?.name ?? "");
  for (let presses = 0; presses < 200; presses += 1) {
    await page.keyboard.press("Tab");
    if ((await focused(page)) === wanted || (await field(page)) === wanted) return true;
  }
  wrong.push(`${page.url()}: no key leads to ${wanted}`);
  return false;
}

async function follow(page, text, path) {
  if (!(await tabTo(page, text))) return;
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  if (!page.url().startsWith(origin + path)) wrong.push(`${text} leads to ${page.url()}`);
}

/** Everything by the keyboard, and without scripts. */
async function keyboard(page) {
  await page.setJavaScriptEnabled(false);
  await page.goto(`${origin}/console`);
  await page.keyboard.press("Tab");
  if ((await focused(page)) !== "Skip to the content") wrong.push(`the first key leads to ${await focused(page)}`);
  await page.keyboard.press("Enter");
  if ((await page.evaluate(() => document.activeElement?.id)) !== "main") wrong.push("the skip link does not skip");
  await page.goto(`${origin}/console`);
  await follow(page, "Calls", "/console/calls");
  const before = await page.$$eval("tbody tr", (rows) => rows.length);
  await tabTo(page, "op");
  await page.keyboard.type(task.rare);
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const after = await page.$$eval("tbody tr", (rows) => rows.length);
  if (!(before === 50 && after > 0 && after < before)) wrong.push(`the filter shows ${after} of ${before} calls`);
  await page.goto(`${origin}/console/calls`);
  await follow(page, "Older calls", "/console/calls?");
}

/** Makes a call. */
async function call() {
  const headers = { authorization: `Bearer ${task.call.token}`, "content-type": "application/json" };
  const answer = await fetch(`${origin}/v1/calls`, { method: "POST", headers, body: task.call.body });
  if (!answer.ok) wrong.push(`the call ends with ${answer.status}`);
}

/** A page shows new calls by itself, but not while it is paused or in use. */
async function live(page) {
  await page.goto(`${origin}/console/calls`);
  const newest = () => page.$eval("tbody tr a", (link) => link.textContent);
  const changes = async (to, when) => {
    const shown = await newest();
    await to();
    const changed = (shown) => document.querySelector("tbody tr a").textContent !== shown;
    await page.waitForFunction(changed, { timeout: 30_000 }, shown).catch(() => wrong.push(`no new call ${when}`));
  };
  const stays = async (when) => {
    const shown = await newest();
    await call();
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    if ((await newest()) !== shown) wrong.push(`a new call ${when}`);
  };
  await changes(call, "while the page is open");
  await accessible(page, "a page after an update");
  // The browser reports each failed request, as it should.
  page.off("console", page.complaint);
  const fail = (request) => (request.resourceType() === "fetch" ? request.abort() : request.continue());
  await page.setRequestInterception(true);
  page.on("request", fail);
  const back = async () => {
    await call();
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    page.off("request", fail);
    await page.setRequestInterception(false);
  };
  await changes(back, "after the host was away");
  page.on("console", page.complaint);
  await page.focus("tbody tr a");
  await stays("replaces a link that has the focus");
  await changes(() => page.focus("input[name=op]"), "after the focus has gone");
  await page.focus("#live");
  await page.keyboard.press("Enter");
  await stays("on a page that is paused");
  await changes(() => page.keyboard.press("Enter"), "on a page that goes on");
}

/** A person approves by the keyboard. */
async function approve() {
  const page = await session(task.approve);
  await page.goto(origin + task.approval);
  await accessible(page, task.approval);
  await shoot(page, "approval");
  await page.setJavaScriptEnabled(false);
  await page.goto(origin + task.approval);
  await tabTo(page, "reason");
  await page.keyboard.type("asked for in ticket 17");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const state = await page.$eval("main p span", (span) => span.textContent);
  if (state !== "approved" || page.url() !== origin + task.approval) wrong.push(`it is ${state} at ${page.url()}`);
  await page.setJavaScriptEnabled(true);
  await page.goto(origin + task.approval);
  await accessible(page, `${task.approval}, approved`);
  // The browser reports that the page after the session is refused, as it is.
  page.removeAllListeners("console");
  await tabTo(page, await page.$eval("header form button", (button) => button.textContent.trim()));
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const title = await page.title();
  if (!title.startsWith("No session")) wrong.push(`the session ends with ${title}`);
}

async function shoot(page, name) {
  if (task.shots) await page.screenshot({ path: `${task.shots}/console-${name}.png`, captureBeyondViewport: false });
}

async function shootAll(page) {
  await page.setViewport(WIDE);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  for (const { name, path, heading } of task.shown) {
    await page.goto(origin + path);
    await page.evaluate((heading) => {
      [...document.querySelectorAll("h2")].find((one) => one.textContent === heading)?.scrollIntoView({ behavior: "instant" });
    }, heading);
    await shoot(page, name);
  }
}

let visited = {};
try {
  const page = await session(task.open);
  visited = await crawl(page);
  await shootAll(page);
  await live(page);
  await keyboard(page);
  await approve();
} catch (error) {
  wrong.push(`${error.stack}`);
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...visited, wrong }));
