//! `binding set` and `binding rebind`: reads a secret without exposing it to other users.

use std::ffi::OsString;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::vault::{BindingName, LockKind};
use cofferdam_model::manifest::{ConnectorName, HostGrant};
use cofferdam_runtime::host::NewBinding;

use super::material::{self, PublicPartArgs};
use super::{BindingNameParser, changed, connector, grants, host};
use crate::report::CommandError;
use crate::secrets;
use crate::session::Session;

const SET_EXAMPLES: &str = "\
Where the binding may go and who may use it are taken from the installed connector that asks for \
it, and shown; where none or several ask, --connector and --host say it. A manifest can only \
narrow it.

oauth2 and aws_sigv4 have several parts. On --stdin, --file and --from-env they are one JSON \
object: `client_secret` and `refresh_token`, or `secret_access_key` and `session_token`. It may \
also have `token_url`, `client_id`, `scopes` and `grant`, or `access_key_id` and `region`, where \
no option gives them. One secret alone may be given without JSON.

Examples:
  cofferdam binding set bearer/slack                              asks for the token
  cofferdam binding set api_key/slack/work --file token.txt
  pass show slack | cofferdam binding set bearer/slack/work --stdin
  cofferdam binding set basic/jira --username ada --host acme.atlassian.net:443
  cofferdam binding set oauth2/x --token-url https://id.example/token --client-id ID < s.json --stdin
  cofferdam binding set aws_sigv4/s3 --access-key-id AKIAIOSFODNN7EXAMPLE --region eu-west-1";

/// Binds a secret to a name that is not bound yet.
///
/// The secret is asked for, or read from standard input, a file or a variable; never from an argument.
#[derive(Debug, clap::Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct SetArgs {
    /// `<kind>/<service>/<identity>`; without an identity, `default`.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,

    /// A connector that may use it.
    #[arg(long, value_name = "CONNECTOR", value_parser = connector)]
    connector: Vec<ConnectorName>,

    /// A host that it may go to, like slack.com:443.
    #[arg(long, value_name = "HOST:PORT", value_parser = host)]
    host: Vec<HostGrant>,

    #[command(flatten)]
    parts: PublicPartArgs,

    #[command(flatten)]
    from: secrets::SecretSourceArgs,

    #[command(flatten)]
    never: RejectedSecretArgs,
}

const REBIND_EXAMPLES: &str = "\
Where the binding may go and who may use it stay as they are, as do the parts that are not given \
again.

Examples:
  cofferdam binding rebind bearer/slack/work
  cofferdam binding rebind aws_sigv4/s3 --access-key-id AKIAI44QH8DHBEXAMPLE --stdin < key.txt";

/// Replaces the secret of a binding, as after it was rotated or refused.
#[derive(Debug, clap::Args)]
#[command(after_help = REBIND_EXAMPLES)]
pub(crate) struct RebindArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,

    #[command(flatten)]
    parts: PublicPartArgs,

    #[command(flatten)]
    from: secrets::SecretSourceArgs,

    #[command(flatten)]
    never: RejectedSecretArgs,
}

/// Options in which users would try to give a secret, although other users can read them.
#[derive(Debug, clap::Args)]
struct RejectedSecretArgs {
    /// Not taken: others can read arguments.
    #[arg(hide = true, value_name = "NOT A SECRET")]
    appended: Vec<OsString>,

    /// Not taken: others can read arguments.
    #[arg(long, hide = true, num_args = 0..=1, aliases = ["key", "api-key", "token", "password", "value", "client-secret", "refresh-token", "secret-access-key", "session-token"])]
    secret: Option<Option<OsString>>,
}

impl RejectedSecretArgs {
    /// Refuses without repeating it.
    fn check(&self, command: &str, name: &BindingName) -> Result<(), HostError> {
        if self.appended.is_empty() && self.secret.is_none() {
            return Ok(());
        }
        let message = "A secret does not belong on the command line, where other users and the shell's history can read it; nothing was bound.";
        let hint = format!(
            "Run `cofferdam binding {command} {name}` and give it when asked, or use --stdin or --file. If it was the real one, have its issuer replace it."
        );
        Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
    }
}

/// Binds.
pub(super) fn set(args: SetArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let SetArgs { name, connector, host: hosts, parts, from, never } = args;
    never.check("set", &name)?;
    parts.check(&name)?;
    let (host, vault) = session.host_and_vault()?;
    // Before the secret is asked for: whatever is wrong is wrong without it.
    let vault = vault.file()?;
    let vault_status = vault.status().map_err(HostError::from)?;
    if host.bindings()?.iter().any(|binding| binding.name == name.to_string()) {
        return Err(HostError::new(HostErrorKind::Conflict, format!("{name} is bound already."))
            .with_hint(format!(
                "Replace its secret with `cofferdam binding rebind {name}`, or bind another identity."
            ))
            .into());
    }
    let grants = grants::decide(&host, &name, connector, hosts)?;
    session.ui.note(&format!(
        "{name} will be for {}, and may go to {}.",
        grants.connectors(),
        grants.hosts()
    ));
    let material = material::read(&name, parts, None, &from, session)?;
    let (hosts, connectors) = grants.into_parts();
    let bound = host.bind(NewBinding { name, material, hosts, connectors })?;
    changed("bound", &bound, session)?;
    if (vault_status.lock, vault_status.new_lock) == (None, LockKind::KeyFile) {
        let key = crate::files::shown(vault.key_file_path());
        let made = if vault_status.has_key_file {
            "locked with the key file that was there"
        } else {
            "new, and locked with a new key file"
        };
        session.ui.note(&format!(
            "The vault is {made}, {key}. Whoever can read both files has every secret in it:"
        ));
        session.ui.note("keep the key file elsewhere (`[vault] key_file` in config.toml), or use a passphrase: `cofferdam binding lock --passphrase`.");
    }
    Ok(())
}

/// Replaces.
pub(super) fn rebind(args: RebindArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let RebindArgs { name, parts, from, never } = args;
    never.check("rebind", &name)?;
    parts.check(&name)?;
    let (host, _) = session.host_and_vault()?;
    host.check_bindings_editable()?;
    let before = host.material(&name)?;
    let material = material::read(&name, parts, Some(&before), &from, session)?;
    changed("rebound", &host.rebind(&name, material)?, session)
}
