//! Creates, gets and lists payments with Stripe.

mod api;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::{Failure, connector, log};

connector!("wit/stripe.wit", Stripe);

struct Stripe;

/// The path of payments.
const PAYMENTS: &str = "https://api.stripe.com/v1/payment_intents";
/// The number of payments listed by default.
const LIMIT: u32 = 100;
/// The most a caller can ask for.
const MOST: u32 = 1000;
/// The most the service gives in one response.
const PER_PAGE: usize = 100;
/// The most names that Stripe attaches to anything.
const METADATA: usize = 50;

impl Guest for Stripe {
    fn create_payment_intent(
        amount: u64,
        currency: String,
        customer: Option<String>,
        description: Option<String>,
        payment_methods: Vec<String>,
        metadata: Vec<(String, String)>,
    ) -> Result<Payment, Failure> {
        if amount == 0 {
            return Err(Failure::invalid_input("amount", "must not be 0"));
        }
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(Failure::invalid_input("currency", "must be three letters, as in usd"));
        }
        let named: BTreeMap<_, _> = metadata.iter().map(|(name, value)| (name.as_str(), value)).collect();
        if named.len() != metadata.len() || named.len() > METADATA {
            let most = format!("must be at most {METADATA}, and no name twice");
            return Err(Failure::invalid_input("metadata", most));
        }
        let any = payment_methods.is_empty();
        let new = api::NewPayment {
            amount,
            currency: currency.to_ascii_lowercase(),
            customer,
            description,
            automatic_payment_methods: any.then_some(api::Automatic { enabled: true }),
            payment_method_types: payment_methods,
            metadata: named,
        };
        let request = stripe(http::post(PAYMENTS)).idempotency_key("create").form_nested(&new);
        let payment: api::Payment = request.send()?.error_for_status()?.json()?;
        Ok(payment.into())
    }

    fn get_payment_intent(id: String) -> Result<Payment, Failure> {
        if id.is_empty() {
            return Err(Failure::invalid_input("id", "must not be empty"));
        }
        let request = stripe(http::get(format!("{PAYMENTS}/{}", http::encode_segment(&id))));
        let payment: api::Payment = request.send()?.error_for_status()?.json()?;
        Ok(payment.into())
    }

    fn list_payment_intents(customer: Option<String>, limit: Option<u32>) -> Result<Page, Failure> {
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(Failure::invalid_input("limit", format!("must be from 1 to {MOST}")));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut payments: Vec<Payment> = Vec::new();
        loop {
            let wanted = limit - payments.len();
            let request = stripe(http::get(PAYMENTS))
                .query("limit", wanted.min(PER_PAGE))
                .query_opt("customer", customer.as_ref())
                .query_opt("starting_after", payments.last().map(|payment| payment.id.as_str()));
            let page: api::Page = request.send()?.error_for_status()?.json()?;
            let (read, more) = (page.data.len(), page.has_more);
            payments.extend(page.data.into_iter().map(Payment::from).take(wanted));
            log::debug("page read", &[("payments", &payments.len())]);
            // A page without payments would be asked for for ever.
            if !more || read == 0 || payments.len() == limit {
                return Ok(Page { payments, more: more || read > wanted });
            }
        }
    }
}

/// Sent with every request: the version of the API that these types were written for.
fn stripe(request: Request) -> Request {
    request.header("stripe-version", "2025-09-30.clover")
}
