//! Reads and creates items at @host@.

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::{Failure, connector@import@};
use serde::{Deserialize, Serialize};

connector!("wit/@name@.wit", @Type@);

struct @Type@;

const ITEMS: &str = "@base@/v1/items";

/// An item as the service sends it.
#[derive(Deserialize)]
struct ItemBody {
    id: String,
    title: String,
}

/// The item that the service is to create.
#[derive(Serialize)]
struct NewItem {
    title: String,
}

impl Guest for @Type@ {
    fn get_item(id: String) -> Result<Item, Failure> {
        if id.is_empty() {
            return Err(Failure::invalid_input("id", "must not be empty"));
        }
        item(http::get(format!("{ITEMS}/{}", http::encode_segment(&id))))
    }

    fn create_item(title: String) -> Result<Item, Failure> {
        // The host may send it again; a service that honours the key creates one item.
        let request = http::post(ITEMS).json(&NewItem { title });
        item(request.idempotency_key("create"))
    }
}

/// Sends a request that is answered with an item.
fn item(request: Request) -> Result<Item, Failure> {
@session@    let response = request.header("accept", "application/json").send()?;
    let ItemBody { id, title } = response.error_for_status()?.json()?;
    Ok(Item { id, title })
}

#[cfg(test)]
mod tests {
    use cofferdam_guest::testing::{Call, json};

    use super::*;

    #[test]
    fn an_id_is_needed() {
        assert!(@Type@::get_item(String::new()).is_err());
    }

    #[test]
    fn an_item_is_read() {
        let call = Call::new();
        let answer = json!({"id": "7", "title": "Umbrella"});
        call.expect(http::get(format!("{ITEMS}/7")))
            .respond_json(200, &answer);
        let item = @Type@::get_item("7".to_owned()).unwrap();
        assert_eq!(item.title, "Umbrella");
    }
}
