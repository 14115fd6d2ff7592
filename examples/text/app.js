// The same operations in JavaScript: one function for each of the interface in wit/text.wit.
import { failed, invalidInput, log, request } from "./cofferdam.js";
const count = (text) => ({
  characters: [...text].length,
  words: text.split(/\s+/).filter(Boolean).length,
  lines: text === "" ? 0 : text.split(/\r?\n/).length,
});
export const text = {
  countText(text) {
    log.info("counting", { characters: text.length });
    return count(text);
  },
  words(text) { return text.split(/\s+/).filter(Boolean); },
  substitute(pattern, replacement, text) {
    let expression;
    try {
      expression = new RegExp(pattern, "gu");
    } catch (error) {
      throw invalidInput("pattern", "not a regular expression", { detail: error.message });
    }
    return text.replace(expression, replacement);
  },
  countPage(url) { return count(request("GET", url).text()); },
  publish(url, text) {
    const response = request("POST", url, { body: text, idempotencyKey: "publish" });
    return { status: response.status, answer: response.text() };
  },
  openSocket() { throw failed("no_sockets", "no sockets in JavaScript"); },
};
