//! Stripe's forms and JSON, as far as they are used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Payment as Own;

/// A payment to be created.
#[derive(Serialize)]
pub(crate) struct NewPayment<'a> {
    pub(crate) amount: u64,
    pub(crate) currency: String,
    pub(crate) customer: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) automatic_payment_methods: Option<Automatic>,
    pub(crate) payment_method_types: Vec<String>,
    pub(crate) metadata: BTreeMap<&'a str, &'a String>,
}

/// All methods that the account has switched on.
#[derive(Serialize)]
pub(crate) struct Automatic {
    pub(crate) enabled: bool,
}

/// Some payments.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) data: Vec<Payment>,
    pub(crate) has_more: bool,
}

/// A payment as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Payment {
    id: String,
    amount: u64,
    currency: String,
    status: String,
    customer: Option<Customer>,
    description: Option<String>,
    created: u64,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The API gives customers in either form.
#[derive(Deserialize)]
#[serde(untagged)]
enum Customer {
    Id(String),
    Whole { id: String },
}

impl From<Payment> for Own {
    fn from(payment: Payment) -> Self {
        Self {
            id: payment.id,
            amount: payment.amount,
            currency: payment.currency,
            status: payment.status,
            customer: payment.customer.map(|(Customer::Id(id) | Customer::Whole { id })| id),
            description: payment.description,
            created: payment.created,
            metadata: payment.metadata.into_iter().collect(),
        }
    }
}
