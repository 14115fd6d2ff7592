"""Reads and creates items at @host@: one method for each function in wit/@name@.wit."""

from cofferdam import Response, encode_segment, invalid_input, request
from wit_world import exports
from wit_world.exports.@snake_name@ import Item
@import@
ITEMS = "@base@/v1/items"
HEADERS = {"accept": "application/json"}


class @Type@(exports.@Type@):
    def get_item(self, id: str) -> Item:
        if not id:
            raise invalid_input("id", "must not be empty")
        return item(request("GET", f"{ITEMS}/{encode_segment(id)}", headers=@headers@))

    def create_item(self, title: str) -> Item:
        # The host may send it again; a service that honours the key creates one item.
        new = {"title": title}
        return item(request("POST", ITEMS, headers=@headers@, json=new, idempotency_key="create"))


def item(response: Response) -> Item:
    """Returns the item that a request is answered with."""
    value = response.json()
    return Item(value["id"], value["title"])
@session@