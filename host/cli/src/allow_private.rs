//! Hosts of private addresses that a command may reach: one option, wherever something is called.

use cofferdam_egress::egress::PrivateGrant;
use cofferdam_runtime::host::HostBuilder;

/// The option.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AllowPrivate {
    /// Lets a connector reach this host although its address is private; its manifest must name the host too. With
    /// `=RANGE` (an address, or a network like 10.20.0.0/16) only there. May be given several times.
    #[arg(
        long,
        value_name = "HOST:PORT[=RANGE]",
        env = "COFFERDAM_ALLOW_PRIVATE",
        hide_env_values = true,
        value_delimiter = ',',
        value_parser = grant
    )]
    allow_private: Vec<String>,
}

/// One host, and where it may be. An empty variable names none.
fn grant(text: &str) -> Result<String, String> {
    match PrivateGrant::parse(text) {
        Err(error) if !text.is_empty() => Err(error.to_string()),
        _ => Ok(text.to_owned()),
    }
}

impl AllowPrivate {
    /// The host that may reach them.
    pub(super) fn apply_to(self, builder: HostBuilder) -> HostBuilder {
        let allowed = self.allow_private.into_iter().filter(|text| !text.is_empty());
        allowed.fold(builder, |builder, host_port| builder.allow_private(host_port))
    }
}
