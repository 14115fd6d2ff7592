//! The operations against scripted answers of Stripe.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use cofferdam_guest::testing::{Call, Value, json};
use cofferdam_guest::{Failure, NetworkPhase, http};

use super::{Guest as _, PAYMENTS, Payment, Stripe};

/// A payment as Stripe's API has it.
fn payment(id: &str) -> Value {
    json!({
        "id": id, "amount": 1099, "currency": "usd", "status": "processing", "customer": {"id": "cus_1"},
        "description": null, "created": 1_769_860_800, "metadata": {"order": "17"},
    })
}

fn create() -> Result<Payment, Failure> {
    let metadata = vec![("order".to_owned(), "17".to_owned())];
    Stripe::create_payment_intent(
        1099,
        "USD".to_owned(),
        Some("cus_1".to_owned()),
        None,
        Vec::new(),
        metadata,
    )
}

#[test]
fn a_payment_is_created_as_a_nested_form() {
    let call = Call::new();
    let form = [
        ("amount", "1099"),
        ("currency", "usd"),
        ("customer", "cus_1"),
        ("automatic_payment_methods[enabled]", "true"),
        ("metadata[order]", "17"),
    ];
    call.expect(http::post(PAYMENTS).header("stripe-version", "2025-09-30.clover").form(form))
        .respond_json(200, &payment("pi_1"));
    let created = create().unwrap();
    assert_eq!((created.id.as_str(), created.customer.as_deref()), ("pi_1", Some("cus_1")));
}

#[test]
fn every_attempt_sends_the_same_request_with_the_same_key() {
    let call = Call::new();
    call.expect(http::post(PAYMENTS)).fail(NetworkPhase::Response);
    assert_eq!(
        create(),
        Err(Failure::network(Some(NetworkPhase::Response)).with_detail("a test interrupted the exchange"))
    );

    call.next_attempt();
    call.expect(http::post(PAYMENTS)).respond_json(200, &payment("pi_1"));
    create().unwrap();

    let requests = call.requests();
    assert_eq!(requests[0].idempotency_key(), Some("test-call:create"));
    assert_eq!(requests[0].to_string(), requests[1].to_string());
}

#[test]
fn a_declined_card_is_an_upstream_failure() {
    let call = Call::new();
    let declined = json!({"error": {"code": "card_declined", "type": "card_error"}});
    call.expect(http::post(PAYMENTS)).respond_json(402, &declined);
    assert_eq!(create().unwrap_err().to_string(), "the service answered with status 402 (card_declined)");
}

#[test]
fn the_next_page_starts_after_the_last_payment() {
    let call = Call::new().in_order();
    call.expect(http::get(PAYMENTS).query("limit", 3))
        .respond_json(200, &json!({"data": [payment("pi_2"), payment("pi_1")], "has_more": true}));
    call.expect(http::get(PAYMENTS).query("limit", 1).query("starting_after", "pi_1"))
        .respond_json(200, &json!({"data": [payment("pi_0")], "has_more": false}));
    let page = Stripe::list_payment_intents(None, Some(3)).unwrap();
    assert_eq!((page.payments.len(), page.more), (3, false));
}
