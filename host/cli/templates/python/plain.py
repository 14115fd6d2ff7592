"""Greets people: one method for each function in wit/@name@.wit."""

from cofferdam import invalid_input
from wit_world import exports


class @Type@(exports.@Type@):
    def greet(self, name: str) -> str:
        if not name:
            raise invalid_input("name", "must not be empty")
        return f"Hello, {name}!"
