//! The web console for reviewers and operators: pages made of what the HTTP API returns, and of nothing else; and the same
//! as files, for the record of a review.
//!
//! Pages are HTML that the server renders, and need no script. A browser gets in with a link that works once, and then has a
//! session. Every text of a connector, an agent or a service is escaped by the template engine.

mod approval_pages;
mod call_pages;
mod chart;
mod connector_pages;
mod explanation;
mod format;
mod frame;
mod headroom;
mod health_page;
mod network_page;
mod report;
mod router;
mod sessions;
mod trust_page;
mod waterfall;

#[cfg(test)]
mod hostile_tests;

pub use explanation::{Explain, FailureExplanation};
pub use report::{Period, connector_report, period_report};
pub use router::{CONSOLE, Console};
pub use sessions::{LINK_LIFETIME, SESSION_LIFETIME, SessionRight};
