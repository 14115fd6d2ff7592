//! Evidence for changes of the keyring: the packages that this home had installed before a moment, and the key sets of
//! publishers.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_audit::{ActionSet, FINDINGS, OperatorChange, OperatorEventFilter};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::operator::OperatorAction;
use cofferdam_core::failure::sanitize_line;
use cofferdam_egress::egress::{HostRequestError, RequestBounds};
use cofferdam_model::registry::RegistryEntry;
use cofferdam_model::trust::{KEY_SET_BYTES, KeyId};
use http::{Request, header};
use http_body_util::Full;
use jiff::Timestamp;

use super::Host;
use crate::log_errors::unreadable;

/// The time limit for a key set from a URL.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30);

impl Host {
    /// Returns the installed packages that were installed before `before` with a signature of `key`, according to the
    /// audit log, which must be intact: they can stay valid after the end of the key. It blocks: not for an executor's
    /// threads.
    ///
    /// The time of a signature is no evidence, because its signer claims it.
    ///
    /// # Errors
    /// `audit_unavailable` or `audit_tampered`: the audit log cannot be read, or is not intact.
    /// `registry_unavailable`: the packages cannot be read.
    pub fn installed_before(&self, key: &KeyId, before: Timestamp) -> Result<Vec<RegistryEntry>, HostError> {
        let Some(mut reader) = self.audit.existing()? else { return Ok(Vec::new()) };
        if !self.audit.verify(&[], FINDINGS, &mut |_, _| {})?.holds {
            let message = "The audit log was changed, so it does not show what was installed when.";
            return Err(HostError::new(HostErrorKind::AuditTampered, message).with_hint(
                "See `cofferdam audit verify`. Without --keep-installed, the key ends for everything it signed.",
            ));
        }
        let actions = ActionSet::Only(vec![OperatorAction::Install]);
        let filter = OperatorEventFilter { actions, ..OperatorEventFilter::default() };
        let mut changes = reader.operator_events(&filter).map_err(unreadable)?;
        changes.reverse();
        let id = key.to_string();
        let mut installs: HashMap<Digest, Vec<Timestamp>> = HashMap::new();
        for OperatorChange { at, event, .. } in &changes {
            let Some(state) = &event.after else { continue };
            let is_signer =
                state.signer.as_deref() == Some(&*id) || state.signers.iter().any(|it| **it == *id);
            let Some(digest) = state.hash.as_deref().and_then(Digest::parse).filter(|_| is_signer) else {
                continue;
            };
            let times = installs.entry(digest).or_default();
            // An install is recorded before it is made; a second entry says that it failed.
            match event.failed {
                true => drop(times.pop()),
                false => times.push(*at),
            }
        }
        let was_there = |entry: &RegistryEntry| {
            installs.get(&entry.digest).is_some_and(|times| times.iter().any(|at| *at < before))
        };
        Ok(self.pipeline.loader.registry.list()?.into_iter().filter(was_there).collect())
    }

    /// Downloads the key set of a publisher, within the bounds of one. Redirects are not followed, and addresses obey
    /// the rules for connectors' requests.
    ///
    /// # Errors
    /// `input_unreadable`: the URL is not allowed, or no key set came from it.
    pub async fn download_key_set(&self, url: &str) -> Result<Bytes, HostError> {
        let shown = sanitize_line(url, 300);
        let failed = |why: String, hint: String| {
            HostError::new(
                HostErrorKind::InputUnreadable,
                format!("The key set {shown} cannot be read: {why}."),
            )
            .with_hint(hint)
        };
        let build = |uri| {
            let request = Request::get(uri).header(header::ACCEPT, "application/json");
            request.body(Full::new(Bytes::new())).map_err(|_| "its URL cannot be asked for".to_owned())
        };
        let bounds = RequestBounds { bytes: KEY_SET_BYTES, time: DOWNLOAD_TIMEOUT };
        let response = self.requests.send(url, build, bounds).await.map_err(|error| match error {
            HostRequestError::Unreachable(why) => failed(why, "Try again later, or import a file.".into()),
            HostRequestError::NotAllowed { why, allow_private } => {
                let hint = match allow_private {
                    Some(entry) => {
                        format!("Add \"{entry}\" to allow_private in config.toml, or import a file.")
                    }
                    None => "Give an https:// URL, or import a file.".to_owned(),
                };
                failed(why, hint)
            }
        })?;
        if response.status().is_redirection() {
            let to = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let to = to.map(|to| format!(" to {}", sanitize_line(to, 300))).unwrap_or_default();
            let why = format!("the server redirects{to}, and redirects are not followed");
            return Err(failed(why, "Give the URL that has the document, if you trust it.".into()));
        }
        match response.status().is_success() {
            true => Ok(response.into_body()),
            false => {
                let why = format!("the server answered {}", response.status().as_u16());
                Err(failed(why, "Check the URL.".into()))
            }
        }
    }
}
