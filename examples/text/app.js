// The same operations in JavaScript: one function for each of the interface in wit/text.wit.
import { log } from "cofferdam:connector/log@0.1.0";
const count = (text) => ({
  characters: [...text].length,
  words: text.split(/\s+/).filter(Boolean).length,
  lines: text === "" ? 0 : text.split(/\r?\n/).length,
});
const answered = async (request) => {
  const response = await request;
  if (!response.ok) throw { payload: { tag: "upstream", val: { status: response.status } } };
  return response;
};
export const text = {
  countText(text) {
    log("info", "counting", [{ key: "characters", value: String(text.length) }]);
    return count(text);
  },
  words(text) { return text.split(/\s+/).filter(Boolean); },
  substitute(pattern, replacement, text) {
    let expression;
    try {
      expression = new RegExp(pattern, "gu");
    } catch (error) {
      throw { payload: { tag: "invalid-input", val: { field: "pattern", message: "not a regular expression", detail: error.message } } };
    }
    return text.replace(expression, replacement);
  },
  async countPage(url) { return count(await (await answered(fetch(url))).text()); },
  async publish(url, text) {
    const response = await answered(fetch(url, { method: "POST", body: text }));
    return { status: response.status, answer: await response.text() };
  },
  openSocket() { throw { payload: { tag: "failed", val: { message: "no sockets in JavaScript", transient: false } } }; },
};
