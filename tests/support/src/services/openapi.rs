//! Mocks that serve a vendor's own description of its API, and refuse requests that do not fit it.

use super::{Server, Tools};

/// A description that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Description {
    /// GitHub's, by GitHub; served by steady, which does not look at credentials.
    Github,
    /// Slack's schema, as published by APIs.guru; served by prism, which requires a credential.
    Slack,
    /// Stripe's schema, as published by APIs.guru; served by steady.
    Stripe,
}

/// Starts the mock of a description.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn openapi(tools: &Tools, description: Description) -> Server {
    let file = |name: &str| tools.dir().join("descriptions").join(name).display().to_string();
    let steady = |name: &str| {
        let args = |port: u16| {
            let args = [
                "--host".into(),
                "127.0.0.1".into(),
                "--port".into(),
                port.to_string(),
                "--log-format=json".into(),
                "--validator-form-object-format=brackets".into(),
                "--validator-form-array-format=brackets".into(),
                file(name),
            ];
            args.to_vec()
        };
        Server::start::<String>(tools, tools.npm("steady"), args, &[])
    };
    match description {
        Description::Github => steady("github.json"),
        Description::Stripe => steady("stripe.json"),
        Description::Slack => {
            let args = |port: u16| {
                let args = ["mock", "--host", "127.0.0.1", "--port"].map(str::to_owned).to_vec();
                [args, vec![port.to_string(), file("slack.json")]].concat()
            };
            Server::start::<String>(tools, tools.npm("prism"), args, &[])
        }
    }
}
