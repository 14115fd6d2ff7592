// Reads and creates items at @host@: one function for each in wit/@name@.wit.
import { encodeSegment, invalidInput, request } from "./cofferdam.js";
@import@
const ITEMS = "@base@/v1/items";
const HEADERS = { accept: "application/json" };

/** Returns the item that a request is answered with. */
function item(response) {
  const { id, title } = response.json();
  return { id, title };
}
@session@
export const @lowerName@ = {
  getItem(id) {
    if (id === "") throw invalidInput("id", "must not be empty");
    return item(request("GET", `${ITEMS}/${encodeSegment(id)}`, { headers: @headers@ }));
  },

  createItem(title) {
    // The host may send it again; a service that honours the key creates one item.
    const options = { headers: @headers@, json: { title }, idempotencyKey: "create" };
    return item(request("POST", ITEMS, options));
  },
};
