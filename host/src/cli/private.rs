//! Hosts of private addresses that a command may reach: one option, wherever something is called.

use crate::host::HostBuilder;

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
        value_delimiter = ','
    )]
    allow_private: Vec<String>,
}

impl AllowPrivate {
    /// The host that may reach them.
    pub(super) fn of(self, builder: HostBuilder) -> HostBuilder {
        // An empty variable names none.
        let allowed = self.allow_private.into_iter().filter(|text| !text.is_empty());
        allowed.fold(builder, |builder, host_port| builder.allow_private(host_port))
    }
}
