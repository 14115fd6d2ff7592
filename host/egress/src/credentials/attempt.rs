//! The credentials of one attempt. The gate asks for them request by request.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode};
use cofferdam_core::limits::REQUESTS;
use cofferdam_core::secret::{Scanner, Secret};
use cofferdam_model::manifest::{CredentialKind, CredentialPlacement};
use http::{HeaderName, request};

use super::broker::{CredentialBroker, PreparedCredentials, bindings_of};
use super::problem;
use super::resolved_binding::{CredentialValue, GrantedCredential, ResolvedBinding, header};
use crate::egress::{
    Authorization, AuthorizationError, AuthorizationFuture, Authorize, Injection, RequestTarget, Sigv4Signer,
    VaultFailure, aws_region, is_read_as,
};
use crate::vault::{Binding, BindingName, OauthTokens, SecretMaterial, scanner_for};

/// The credentials of one attempt.
pub(super) struct AttemptCredentials {
    broker: Arc<CredentialBroker>,
    prepared: Arc<PreparedCredentials>,
    state: Mutex<CredentialState>,
}

/// The state that changes within an attempt.
struct CredentialState {
    handles: HandleTable,
    /// Tokens renewed since the call began; `None` for a token that the service has rejected since.
    tokens: HashMap<BindingName, Option<OauthTokens>>,
    /// The bindings whose token a service rejected in this attempt. Each is invalidated only once per
    /// attempt.
    invalidated: HashSet<BindingName>,
    /// The bindings with the tokens obtained since. A secret that was scanned for once is scanned for until
    /// the end.
    renewed: Vec<Binding>,
    scanner: Arc<Scanner>,
}

impl AttemptCredentials {
    pub(super) fn new(broker: Arc<CredentialBroker>, prepared: Arc<PreparedCredentials>) -> Self {
        let scanner = Arc::clone(&prepared.scanner);
        let (distrusted, renewed) = (HashSet::new(), Vec::new());
        let now = CredentialState {
            handles: HandleTable::default(),
            tokens: HashMap::new(),
            invalidated: distrusted,
            renewed,
            scanner,
        };
        Self { broker, prepared, state: Mutex::new(now) }
    }

    fn state(&self) -> MutexGuard<'_, CredentialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the part of one credential that a request to `target` carries.
    async fn add(
        &self,
        to: &mut Authorization,
        entry: &GrantedCredential,
        bound: &ResolvedBinding,
        target: &RequestTarget,
    ) -> Result<(), AuthorizationError> {
        match &bound.value {
            CredentialValue::Ready(injection) => to.injections.push(injection.clone()),
            // Added only for a request that contains a handle.
            CredentialValue::Handle(_) => return Ok(()),
            CredentialValue::Token(_) => {
                let token = self.token(bound).await?;
                let injection = header(entry.grant.placement(), &token)
                    .map_err(|why| AuthorizationError::Binding(problem::unsendable(&bound.name, why)))?;
                to.injections.push(injection);
            }
            CredentialValue::Signature { access_key_id, secret_access_key, session_token, region } => {
                let region = aws_region(target.host(), region.as_deref()).ok_or_else(|| {
                    AuthorizationError::Binding(problem::no_region(&bound.name, target.host()))
                })?;
                to.signer = Some(Arc::new(Sigv4Signer {
                    access_key_id: access_key_id.clone(),
                    secret_access_key: Arc::clone(secret_access_key),
                    session_token: session_token.clone(),
                    service: entry.grant.signing_name().to_owned(),
                    region,
                    clock: Arc::clone(&self.broker.clock),
                }));
            }
        }
        to.bindings.push(Arc::clone(&bound.text));
        Ok(())
    }

    /// Returns the access token: the one from the beginning of the call while it is valid, otherwise one from
    /// the token manager.
    async fn token(&self, bound: &ResolvedBinding) -> Result<Arc<Secret>, AuthorizationError> {
        let known = self.state().tokens.get(&bound.name).cloned();
        let at_first = match &bound.value {
            CredentialValue::Token(tokens) => tokens.as_ref(),
            _ => None,
        };
        let current = match known {
            Some(known) => known,
            None => at_first.cloned(),
        };
        if let Some(tokens) = current.filter(|tokens| self.broker.token_manager.is_fresh(tokens)) {
            return Ok(tokens.access_token);
        }
        let tokens = self.broker.token_manager.token(&bound.name).await?;
        let token = Arc::clone(&tokens.access_token);
        // The scanner must know the token that is sent, even if the vault now has another one or cannot be
        // read.
        let as_sent = self.prepared.bindings.get(&bound.name).cloned().map(|binding| with(binding, &tokens));
        let as_kept = self.broker.bindings().await.ok();
        let as_kept = as_kept.and_then(|bindings| bindings.get(&bound.name).cloned());
        let mut now = self.state();
        now.tokens.insert(bound.name.clone(), Some(tokens));
        now.renewed.extend(as_sent.into_iter().chain(as_kept));
        let at_first = bindings_of(&self.prepared.bindings, self.prepared.entries.iter());
        now.scanner = Arc::new(scanner_for(at_first.chain(&now.renewed)));
        Ok(token)
    }

    /// Adds the secrets that the handles in `head` stand for. Each handle must be valid for this target.
    fn resolve_handles(
        &self,
        to: &mut Authorization,
        target: &RequestTarget,
        head: &request::Parts,
    ) -> Result<(), Denial> {
        if !self.has_session_tokens() {
            return Ok(());
        }
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let texts = head.headers.values().map(|value| value.as_bytes()).chain([path.as_bytes()]);
        let mut found: Vec<String> = texts.flat_map(find_handles).collect();
        found.sort_unstable();
        found.dedup();
        let mut now = self.state();
        for handle in &found {
            let of = now.handles.credential_index(handle).map_err(|why| self.bad_handle(why))?;
            let bound = self.prepared.entries.get(of).and_then(|entry| entry.for_target(target));
            let Some(ResolvedBinding { value: CredentialValue::Handle(secret), text, .. }) = bound else {
                return Err(self.bad_handle(&format!("its credential does not go to {target}")));
            };
            to.injections.push(Injection::Replace { handle: handle.clone(), secret: Arc::clone(secret) });
            if !to.bindings.contains(text) {
                to.bindings.push(Arc::clone(text));
            }
        }
        // A handle is for one request, whatever its outcome.
        found.iter().for_each(|handle| now.handles.spend(handle));
        Ok(())
    }

    fn has_session_tokens(&self) -> bool {
        self.prepared.entries.iter().any(|entry| entry.grant.kind() == CredentialKind::SessionToken)
    }

    fn bad_handle(&self, why: &str) -> Denial {
        self.denial(DenialCode::CredentialHandle, "credential:handle")
            .with_remark(format!("A handle for a credential is not replaced here: {why}."))
    }

    fn denial(&self, code: DenialCode, requested: &str) -> Denial {
        let entries = self.prepared.entries.iter();
        let granted = entries
            .map(|entry| format!("credential:{} in {}", entry.grant.label(), entry.grant.placement()))
            .collect();
        Denial::new(DenialBoundary::Sandbox, code, requested, granted)
    }

    /// Rejects a query parameter of the guest that the host sets itself.
    fn check_query(&self, entry: &GrantedCredential, head: &request::Parts) -> Result<(), Denial> {
        let Some(own) = entry.grant.placement().query() else { return Ok(()) };
        let query = head.uri.query().unwrap_or_default();
        // Some servers accept `;` as a separator, and some ignore case.
        let mut names = query.split(['&', ';']).flat_map(|pair| url::form_urlencoded::parse(pair.as_bytes()));
        if names.any(|(name, _)| name.trim().eq_ignore_ascii_case(own)) {
            let denial = self.denial(DenialCode::CredentialParameter, &format!("parameter:{own}"));
            return Err(denial.with_remark("The host writes this query parameter itself: leave it out."));
        }
        Ok(())
    }
}

impl Authorize for AttemptCredentials {
    fn authorize<'a>(
        &'a self,
        target: &'a RequestTarget,
        head: &'a request::Parts,
    ) -> AuthorizationFuture<'a> {
        Box::pin(async move {
            let mut authorization = Authorization::default();
            let mut state = String::new();
            for entry in self.prepared.entries.iter().filter(|entry| entry.is_for(target)) {
                self.check_query(entry, head).map_err(AuthorizationError::Denied)?;
                match (entry.for_target(target), &entry.bound) {
                    (Some(bound), _) => {
                        self.add(&mut authorization, entry, bound, target).await?;
                        state.push_str(&bound.state);
                        state.push('\n');
                    }
                    (None, Some(bound)) if !entry.grant.optional() => {
                        return Err(AuthorizationError::Binding(problem::host_not_allowed(
                            &bound.name,
                            target,
                        )));
                    }
                    (None, _) => {}
                }
            }
            self.resolve_handles(&mut authorization, target, head).map_err(AuthorizationError::Denied)?;
            authorization.identity = (!state.is_empty()).then(|| state.into());
            Ok(authorization)
        })
    }

    fn bindings_for(&self, target: &RequestTarget) -> Vec<String> {
        let bound = self.prepared.entries.iter().filter_map(|entry| entry.for_target(target));
        bound.map(|bound| bound.text.to_string()).collect()
    }

    fn credential_fingerprint(&self, target: &RequestTarget) -> Option<String> {
        let bound = self.prepared.entries.iter().filter_map(|entry| entry.for_target(target));
        let states: Vec<&str> = bound.map(|bound| &*bound.state).collect();
        (!states.is_empty()).then(|| states.join("\n"))
    }

    fn can_renew(&self, target: &RequestTarget) -> bool {
        let now = self.state();
        let obtained = |bound: &ResolvedBinding| matches!(now.tokens.get(&bound.name), Some(Some(_)));
        let mut bound = self.prepared.entries.iter().filter_map(|entry| entry.for_target(target));
        bound.any(|bound| matches!(bound.value, CredentialValue::Token(_)) && !obtained(bound))
    }

    fn writes_header(&self, name: &HeaderName) -> bool {
        let mut headers = self.prepared.entries.iter().flat_map(|entry| entry.grant.placement().headers());
        headers.any(|own| is_read_as(name.as_str(), own.as_str()))
    }

    fn credential_rejected<'a>(
        &'a self,
        target: &'a RequestTarget,
        authorization: &'a Authorization,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            for entry in &self.prepared.entries {
                let Some(bound) = entry.for_target(target) else { continue };
                // A service that rejects every token must not trigger a renewal for every request.
                if matches!(bound.value, CredentialValue::Token(_))
                    && self.state().invalidated.insert(bound.name.clone())
                {
                    let carried = |token: &Secret| carries(authorization, entry.grant.placement(), token);
                    self.broker.token_manager.invalidate(&bound.name, carried).await;
                    self.state().tokens.insert(bound.name.clone(), None);
                }
            }
        })
    }

    fn handle(&self, service: &str) -> Result<Option<String>, AuthorizationError> {
        let kind = CredentialKind::SessionToken;
        let wanted =
            |entry: &GrantedCredential| (entry.grant.kind(), entry.grant.service()) == (kind, service);
        let Some(at) = self.prepared.entries.iter().position(wanted) else {
            let requested = format!("credential:{}/{service}", kind.name());
            let denial = self.denial(DenialCode::CredentialNotGranted, &requested);
            let fix = "To allow it, add a [[capabilities.credential]] with kind = \"session_token\" and this \
                service to connector.toml, then build, sign and install the connector again.";
            return Err(AuthorizationError::Denied(denial.with_alternative(fix)));
        };
        if self.prepared.entries.get(at).is_none_or(|entry| entry.bound.is_none()) {
            return Ok(None);
        }
        self.state().handles.mint(at).map(Some).map_err(|none| match none {
            HandleError::TooMany => {
                AuthorizationError::Denied(self.bad_handle("there are as many as there can be requests"))
            }
            HandleError::NoRandomness => AuthorizationError::Host(VaultFailure {
                kind: HostErrorKind::Internal,
                message: "The system gives no random numbers.".into(),
                hint: "Look at the system's log.".into(),
            }),
        })
    }

    fn has_handles(&self) -> bool {
        self.has_session_tokens()
    }

    fn handle_in_body(&self, bytes: &[u8]) -> Option<Denial> {
        (!find_handles(bytes).is_empty()).then(|| self.bad_handle("it stands in the request's body"))
    }

    fn scanner(&self) -> Arc<Scanner> {
        Arc::clone(&self.state().scanner)
    }
}

/// Returns the binding with its tokens replaced by `renewed`.
fn with(mut binding: Binding, renewed: &OauthTokens) -> Binding {
    if let SecretMaterial::Oauth2 { tokens, .. } = &mut binding.material {
        *tokens = Some(renewed.clone());
    }
    binding
}

/// Returns whether `authorization` carried this token.
fn carries(authorization: &Authorization, place: &CredentialPlacement, token: &Secret) -> bool {
    let Ok(Injection::Header(_, sent)) = header(place, token) else { return false };
    let is_it = |injection: &Injection| matches!(injection, Injection::Header(_, value) if *value == sent);
    authorization.injections.iter().any(is_it)
}

/// The prefix of every handle; 32 hexadecimal digits follow.
const PREFIX: &str = "cofferdam-handle-";
const DIGITS: usize = 32;

/// The state of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandleState {
    Fresh,
    Spent,
}

/// The issued handles, each with the credential of the call that it stands for.
#[derive(Debug, Default)]
pub(super) struct HandleTable {
    given: BTreeMap<String, (usize, HandleState)>,
}

/// The reason why no handle could be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandleError {
    /// There are already as many handles as there can be requests.
    TooMany,
    /// The system has no randomness.
    NoRandomness,
}

impl HandleTable {
    /// Issues a handle of 128 random bits for the credential `of`.
    pub(super) fn mint(&mut self, of: usize) -> Result<String, HandleError> {
        if self.given.len() as u64 >= REQUESTS {
            return Err(HandleError::TooMany);
        }
        let mut bytes = [0; DIGITS / 2];
        getrandom::fill(&mut bytes).map_err(|_| HandleError::NoRandomness)?;
        let handle = format!("{PREFIX}{:032x}", u128::from_be_bytes(bytes));
        self.given.insert(handle.clone(), (of, HandleState::Fresh));
        Ok(handle)
    }

    /// Returns the credential that `handle` stands for, if the handle belongs to this attempt and is not
    /// spent.
    pub(super) fn credential_index(&self, handle: &str) -> Result<usize, &'static str> {
        match self.given.get(handle) {
            Some((of, HandleState::Fresh)) => Ok(*of),
            Some((_, HandleState::Spent)) => Err("it was good for one request, which was made"),
            None => Err("it is none of this attempt's"),
        }
    }

    /// Invalidates the handle.
    pub(super) fn spend(&mut self, handle: &str) {
        if let Some((_, state)) = self.given.get_mut(handle) {
            *state = HandleState::Spent;
        }
    }
}

/// Returns everything in `text` that looks like a handle, without duplicates.
pub(super) fn find_handles(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, window) in text.windows(PREFIX.len()).enumerate() {
        if window != PREFIX.as_bytes() {
            continue;
        }
        let rest = text.get(at + PREFIX.len()..).unwrap_or_default();
        let digits = rest.iter().take(DIGITS).take_while(|b| b.is_ascii_hexdigit()).count();
        let end = at + PREFIX.len() + digits;
        let handle = String::from_utf8_lossy(text.get(at..end).unwrap_or_default()).into_owned();
        if !found.contains(&handle) {
            found.push(handle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use super::*;

    #[test]
    fn a_handle_is_unguessable_and_single_use() {
        let mut handles = HandleTable::default();
        let (one, two) = (handles.mint(0).unwrap(), handles.mint(1).unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), PREFIX.len() + DIGITS);
        assert_eq!((handles.credential_index(&one), handles.credential_index(&two)), (Ok(0), Ok(1)));
        handles.spend(&one);
        assert!(handles.credential_index(&one).is_err() && handles.credential_index(&two) == Ok(1));
        assert!(
            handles.credential_index(&one[..one.len() - 1]).is_err()
                && HandleTable::default().credential_index(&two).is_err()
        );
        let more = std::iter::from_fn(|| handles.mint(0).ok()).count() as u64;
        assert_eq!(more, REQUESTS - 2);
    }

    #[test]
    fn handles_are_found_whole_or_broken() {
        let handle = HandleTable::default().mint(0).unwrap();
        let text = format!("a={handle}&b={handle}.{PREFIX}12-{PREFIX}");
        assert_eq!(find_handles(text.as_bytes()), [handle, format!("{PREFIX}12"), PREFIX.to_owned()]);
        assert!(find_handles(b"cofferdam-handl").is_empty());
    }
}
