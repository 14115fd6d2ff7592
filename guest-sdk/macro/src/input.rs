//! The arguments of `connector!`.

use syn::parse::{Parse, ParseStream};
use syn::{LitStr, Path, Token};

/// The arguments `"wit/slack.wit", Slack`, with an optional trailing comma.
pub(crate) struct Input {
    /// The WIT file or directory, relative to the crate's `Cargo.toml`.
    pub(crate) wit: LitStr,
    /// The type that implements the operations.
    pub(crate) connector: Path,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let usage = |error: syn::Error| {
            syn::Error::new(error.span(), format!("{error}; write connector!(\"wit/slack.wit\", Slack)"))
        };
        let wit = input.parse().map_err(usage)?;
        input.parse::<Token![,]>().map_err(usage)?;
        let connector = input.parse().map_err(usage)?;
        input.parse::<Option<Token![,]>>()?;
        if input.is_empty() { Ok(Self { wit, connector }) } else { Err(usage(input.error("too much"))) }
    }
}
