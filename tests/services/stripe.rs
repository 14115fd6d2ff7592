//! `stripe` against steady, which serves Stripe's description and refuses what does not fit it.

use serde_json::{Value, json};

use super::fixture::{STRIPE, assert_token, stage};
use crate::envelope;

fn payment(order: &str) -> Value {
    json!({"amount": 1099, "currency": "USD", "customer": "cus_9s6XKzkNRiz8i3", "description": "Two lamps",
           "payment_methods": [], "metadata": [["order", order], ["shop", "Zürich & Bern"]]})
}

#[test]
fn a_payment_is_created_by_the_schema() {
    let Some(stage) = stage() else { return };
    let created = stage.value("stripe", "create_payment_intent", payment("o-1"));
    assert!(!created["id"].as_str().unwrap().is_empty() && created["amount"].is_u64(), "{created}");
    let seen = stage.front.seen(STRIPE, "o-1");
    assert_eq!(
        (seen.len(), seen[0].method.as_str(), seen[0].path.as_str()),
        (1, "POST", "/v1/payment_intents")
    );
    assert_eq!(
        String::from_utf8_lossy(&seen[0].body),
        "amount=1099&automatic_payment_methods%5Benabled%5D=true&currency=usd&customer=cus_9s6XKzkNRiz8i3\
         &description=Two+lamps&metadata%5Border%5D=o-1&metadata%5Bshop%5D=Z%C3%BCrich+%26+Bern"
    );
    assert_eq!(seen[0].header("stripe-version"), Some("2025-09-30.clover"));
    assert_token(&seen);
    let mut by_card = payment("o-2");
    by_card["payment_methods"] = json!(["card", "link"]);
    stage.value("stripe", "create_payment_intent", by_card);
    let seen = stage.front.seen(STRIPE, "o-2");
    let body = String::from_utf8_lossy(&seen[0].body);
    assert!(body.ends_with("&payment_method_types%5B%5D=card&payment_method_types%5B%5D=link"), "{body}");
    assert!(!body.contains("automatic"), "{body}");
}

#[test]
fn a_payment_keeps_its_key_in_every_attempt() {
    let Some(stage) = stage() else { return };
    stage.under_key("stripe", "create_payment_intent", payment("o-3"), "order-3");
    stage.under_key("stripe", "create_payment_intent", payment("o-3"), "order-3");
    stage.value("stripe", "create_payment_intent", payment("o-3"));
    stage.value("stripe", "create_payment_intent", payment("o-3"));
    let seen = stage.front.seen(STRIPE, "o-3");
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-key").unwrap()).collect();
    assert_eq!((keys.len(), keys[0]), (3, "order-3:create"), "under one key it is asked once");
    assert!(keys[1] != keys[2] && keys[1] != keys[0], "another call, another key: {keys:?}");
    assert!(keys.iter().all(|key| key.len() <= 255), "Stripe takes no longer ones: {keys:?}");
}

#[test]
fn a_request_outside_the_schema_is_a_bad_request() {
    let Some(stage) = stage() else { return };
    let mut nested = payment("o-4");
    // As a form this gives `order` fields of its own, which metadata cannot have.
    nested["metadata"] = json!([["order][of", "o-4"]]);
    let failure = stage.failure("stripe", "create_payment_intent", nested);
    envelope::check(&failure, envelope::upstream("bad_request", false));
    assert_eq!(failure.details()["status"], 400);
}

#[test]
fn a_payment_is_fetched() {
    let Some(stage) = stage() else { return };
    let got = stage.value("stripe", "get_payment_intent", json!({"id": "pi_3MtwBwLkdIwHu7ix28a3tqPa"}));
    let keys: Vec<_> = got.as_object().unwrap().keys().map(String::as_str).collect();
    let fields = ["id", "amount", "currency", "status", "customer", "description", "created", "metadata"];
    assert_eq!(keys, fields, "and no client_secret");
    let seen = stage.front.seen(STRIPE, "pi_3MtwBwLkdIwHu7ix28a3tqPa");
    assert_eq!(seen[0].path, "/v1/payment_intents/pi_3MtwBwLkdIwHu7ix28a3tqPa");
    assert_eq!(seen[0].header("idempotency-key"), None, "nothing is changed");
    stage.value("stripe", "get_payment_intent", json!({"id": "pi_x/../../customers"}));
    assert_eq!(
        stage.front.seen(STRIPE, "customers")[0].path,
        "/v1/payment_intents/pi_x%2F..%2F..%2Fcustomers"
    );
}

#[test]
fn stripes_errors_keep_their_names() {
    let Some(stage) = stage() else { return };
    let error = |kind: &str, code: &str| {
        json!({"error": {"type": kind, "code": code, "message": "Told apart."}}).to_string()
    };
    let cases = [
        (
            "pi_401",
            401,
            json!({"error": {"type": "invalid_request_error", "message": "No such key."}}).to_string(),
            "auth",
            "invalid_request_error",
            false,
        ),
        ("pi_402", 402, error("card_error", "card_declined"), "payment_required", "card_declined", false),
        (
            "pi_403",
            403,
            error("invalid_request_error", "more_permissions_required"),
            "auth",
            "more_permissions_required",
            false,
        ),
        (
            "pi_404",
            404,
            error("invalid_request_error", "resource_missing"),
            "not_found",
            "resource_missing",
            false,
        ),
        (
            "pi_409",
            409,
            error("idempotency_error", "idempotency_key_in_use"),
            "bad_request",
            "idempotency_key_in_use",
            false,
        ),
        ("pi_429", 429, error("invalid_request_error", "rate_limit"), "rate_limited", "rate_limit", true),
        ("pi_500", 500, error("api_error", "processing_error"), "unavailable", "processing_error", true),
    ];
    for (id, status, body, code, name, retriable) in cases {
        stage.front.answer(STRIPE, id, (status, &[("content-type", "application/json")], &body));
        let failure = stage.failure("stripe", "get_payment_intent", json!({ "id": id }));
        envelope::check(&failure, envelope::upstream(code, retriable));
        assert_eq!(
            (&failure.details()["status"], &failure.details()["upstream_code"]),
            (&json!(status), &json!(name))
        );
        assert!(!failure.message().contains("Told apart"), "{}", failure.message());
    }
}

#[test]
fn payments_are_listed_across_pages() {
    let Some(stage) = stage() else { return };
    let one = stage.value("stripe", "list_payment_intents", json!({"limit": 3}));
    assert_eq!(
        (one["payments"].as_array().unwrap().len(), &one["more"]),
        (1, &json!(false)),
        "steady makes one up"
    );

    let page = |ids: std::ops::Range<u32>, more: bool| {
        let intent = |id| {
            json!({"id": format!("pi_{id}"), "amount": 5, "currency": "usd", "status": "succeeded",
                                 "customer": {"id": "cus_paged"}, "description": null, "created": 1, "metadata": {"a": "b"}})
        };
        json!({"object": "list", "data": ids.map(intent).collect::<Vec<_>>(), "has_more": more}).to_string()
    };
    stage.front.answer(
        STRIPE,
        "customer=cus_paged&starting_after=pi_199",
        (200, &[], &page(200..230, false)),
    );
    stage.front.answer(STRIPE, "customer=cus_paged&starting_after=pi_99", (200, &[], &page(100..200, true)));
    stage.front.answer(STRIPE, "customer=cus_paged", (200, &[], &page(0..100, true)));
    let list = |limit: u32| {
        let page =
            stage.value("stripe", "list_payment_intents", json!({"customer": "cus_paged", "limit": limit}));
        let ids: Vec<_> =
            page["payments"].as_array().unwrap().iter().map(|it| it["id"].to_string()).collect();
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len(), "none twice");
        assert_eq!(page["payments"][0]["customer"], "cus_paged");
        (ids.len(), page["more"].as_bool().unwrap())
    };
    assert_eq!(list(1000), (230, false));
    assert_eq!(list(150), (150, true));
    assert_eq!(list(100), (100, true));
    let asked: Vec<_> = stage.front.seen(STRIPE, "cus_paged").iter().map(|seen| seen.path.clone()).collect();
    assert!(asked[0].ends_with("?limit=100&customer=cus_paged"), "{asked:?}");
    assert_eq!(asked.len(), 3 + 2 + 1, "no page more than needed: {asked:?}");
}

#[test]
fn invalid_stripe_arguments_are_not_sent() {
    let Some(stage) = stage() else { return };
    let wrong = |field: &str, value: Value| {
        let mut args = payment("o-nobody");
        args[field] = value;
        args
    };
    for args in [
        wrong("amount", json!(0)),
        wrong("currency", json!("dollars")),
        wrong("currency", json!("us$")),
        wrong("metadata", json!([["order", "o-nobody"], ["order", "twice"]])),
    ] {
        let failure = stage.failure("stripe", "create_payment_intent", args.clone());
        assert_eq!(failure.code(), "input_invalid", "{args}");
    }
    assert!(stage.front.seen(STRIPE, "o-nobody").is_empty());
}
