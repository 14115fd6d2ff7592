//! The keys of a scenario file: what the parser accepts, and what the reference says of each.

/// One key: its name, the type and default of its value, and its meaning.
#[cfg_attr(not(test), expect(dead_code, reason = "the reference is made in a test"))]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: &'static str,
    pub(crate) meaning: &'static str,
}

const fn key(name: &'static str, form: &'static str, meaning: &'static str) -> Key {
    Key { name, form, meaning }
}

/// One table of the format.
#[cfg_attr(not(test), expect(dead_code, reason = "the reference is made in a test"))]
pub(crate) struct Table {
    /// Its heading in the reference.
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Table {
    /// Returns the names of its keys.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

pub(crate) const FILE: Table =
    Table { title: "The file", keys: &[key("scenario", "tables", "`[[scenario]]`, one for each scenario")] };

pub(crate) const SCENARIO: Table = Table {
    title: "`[[scenario]]`",
    keys: &[
        key("name", "text", "What it shows. Unique in the file."),
        key("unordered", "flag, `false`", "The requests may come in any order."),
        key(
            "clock",
            "time",
            "The time of day, for host and guest. It stands, but for the waits that are skipped. Without it they have \
             the machine's.",
        ),
        key(
            "bind",
            "table",
            "Secrets, by `kind/service` or `kind/service/identity`; `false` binds none. Without an entry, each \
             credential of the manifest is bound to a made-up secret. `basic` is `\"user:password\"`, `aws_sigv4` is \
             `\"key id:secret\"`, `oauth2` is an access token that does not expire.",
        ),
        key(
            "service",
            "tables",
            "`[[scenario.service]]`: the requests that have to come, in order, and the answers.",
        ),
        key("call", "tables", "`[[scenario.call]]`: the calls, one after the other. At least one."),
    ],
};

pub(crate) const SERVICE: Table = Table {
    title: "`[[scenario.service]]`",
    keys: &[
        key("request", "table", "The request."),
        key("response", "table, status 200 without a body", "The response."),
        key("fault", "table", "A [fault](#faults) instead, or of the response that is given with it."),
        key(
            "times",
            "number, 1",
            "The number of times that the request has to come, each with the same answer.",
        ),
    ],
};

pub(crate) const REQUEST: Table = Table {
    title: "`request`",
    keys: &[
        key("method", "text", "The method, in upper case."),
        key("url", "text", "The URL. The manifest grants its host. The path may have placeholders."),
        key(
            "query",
            "table",
            "All parameters of the query, decoded; a list for a repeated one; `\"...\" = \"{{any}}\"` allows others. \
             Parameters that a credential writes are not compared.",
        ),
        key("headers", "table", "Header fields that have to be there. Others are not compared."),
        key(
            "json",
            "value",
            "The body as JSON. Objects and lists have to be complete, unless they have `\"...\"`.",
        ),
        key("form", "table", "The body as form, decoded; like `query`."),
        key("body", "text", "The body as text."),
    ],
};

pub(crate) const RESPONSE: Table = Table {
    title: "`response`",
    keys: &[
        key("status", "number, 200", "The status."),
        key(
            "headers",
            "table",
            "Header fields. `content-length` is added, with `json` also a `content-type`.",
        ),
        key("json", "value", "The body as JSON."),
        key("body", "text", "The body as text."),
        key("body_file", "text", "The file with the body, beside the scenario file."),
    ],
};

pub(crate) const FAULT: Table = Table {
    title: "`fault`",
    keys: &[
        key("kind", "text", "See [faults](#faults)."),
        key("after_bytes", "number, 0", "`reset`: the bytes of the response's body before it."),
        key("bytes_per_second", "number", "`drip`: the speed."),
        key("certificate", "text, `unknown_issuer`", "`tls`: `unknown_issuer`, `expired` or `wrong_host`."),
    ],
};

pub(crate) const CALL: Table = Table {
    title: "`[[scenario.call]]`",
    keys: &[
        key("operation", "text", "The operation; `create-issue` and `create_issue` are the same."),
        key("args", "table", "The arguments. `\"{{null}}\"` is JSON's `null`."),
        key("key", "text", "The idempotency key."),
        key("identity", "table", "The identity for each service, like `{ slack = \"work\" }`."),
        key("expect", "table", "What the caller has to see; without it, any value."),
    ],
};

pub(crate) const EXPECT: Table = Table {
    title: "`expect`",
    keys: &[
        key("value", "value", "The value, as the caller gets it."),
        key("failure", "table", "The failure."),
        key("error", "table", "The error of a call that the host did not accept."),
        key("attempts", "number", "The number of attempts."),
    ],
};

pub(crate) const FAILURE: Table = Table {
    title: "`expect.failure`",
    keys: &[
        key("class", "text", "The [class](failures.md#the-nine-classes-and-their-codes)."),
        key("code", "text", "The code."),
        key("boundary", "text", "The boundary."),
        key("message", "text", "The message."),
        key("retriable", "flag", "Whether calling again may help."),
        key("details", "table", "Some of the details."),
    ],
};

pub(crate) const ERROR: Table = Table {
    title: "`expect.error`",
    keys: &[
        key("code", "text", "The [code](failures.md#errors-of-the-host-and-the-third-outcome)."),
        key("message", "text", "The message."),
    ],
};

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Nothing listens.
    Refuse,
    /// The connection is reset.
    Reset,
    /// The response is slow.
    Drip,
    /// There is no response.
    Timeout,
    /// The response is not HTTP.
    Malformed,
    /// The certificate is not valid.
    Tls,
}

impl FaultKind {
    /// Every kind.
    pub(crate) const ALL: [Self; 6] =
        [Self::Refuse, Self::Reset, Self::Drip, Self::Timeout, Self::Malformed, Self::Tls];

    /// Returns the word in a scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Reset => "reset",
            Self::Drip => "drip",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Tls => "tls",
        }
    }

    /// Returns what happens.
    #[cfg(test)]
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Refuse => "Nothing listens: the connection is refused.",
            Self::Reset => {
                "The connection is reset: before the response, or with `response` after `after_bytes` bytes of its body."
            }
            Self::Drip => "The body of `response` comes at `bytes_per_second`, by the clock of the call.",
            Self::Timeout => {
                "There is no response, and the clock of the call runs fast until its time is over. A connector's own \
                 timeouts take their real time."
            }
            Self::Malformed => "What comes is not HTTP.",
            Self::Tls => "The certificate is not valid, for the reason in `certificate`.",
        }
    }

    /// Returns whether the fault may have a response beside it.
    pub(crate) const fn has_response(self) -> bool {
        matches!(self, Self::Reset | Self::Drip)
    }
}
