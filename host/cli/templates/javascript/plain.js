// Greets people: one function for each in wit/@name@.wit.
import { invalidInput } from "./cofferdam.js";

export const @lowerName@ = {
  greet(name) {
    if (name === "") throw invalidInput("name", "must not be empty");
    return `Hello, ${name}!`;
  },
};
