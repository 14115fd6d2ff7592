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

/// Starts the mock of the description in a file: prism for Slack's, steady for all others. Its answers are made of the
/// schemas, since examples of Slack's description do not fit them.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn described(tools: &Tools, file: &str) -> Server {
    match file {
        "slack.json" => prism(tools, file, &["--dynamic", "--seed", "7"]),
        file => steady(tools, file),
    }
}

fn steady(tools: &Tools, name: &str) -> Server {
    let file = tools.dir().join("descriptions").join(name).display().to_string();
    let args = |port: u16| {
        let args = [
            "--host".into(),
            "127.0.0.1".into(),
            "--port".into(),
            port.to_string(),
            "--log-format=json".into(),
            "--validator-form-object-format=brackets".into(),
            "--validator-form-array-format=brackets".into(),
            file.clone(),
        ];
        args.to_vec()
    };
    Server::start::<String>(tools, tools.npm("steady"), args, &[])
}

fn prism(tools: &Tools, name: &str, options: &[&str]) -> Server {
    let file = tools.dir().join("descriptions").join(name).display().to_string();
    let args = |port: u16| {
        let port = port.to_string();
        let args = ["mock", "--host", "127.0.0.1", "--port", &port, &file];
        args.iter().chain(options).map(|&arg| arg.to_owned()).collect()
    };
    Server::start::<String>(tools, tools.npm("prism"), args, &[])
}

/// Starts the mock of a description.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn openapi(tools: &Tools, description: Description) -> Server {
    match description {
        Description::Github => steady(tools, "github.json"),
        Description::Stripe => steady(tools, "stripe.json"),
        Description::Slack => prism(tools, "slack.json", &[]),
    }
}
