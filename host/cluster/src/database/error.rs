//! Why a database cannot be used. No error has a password in it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use cofferdam_audit::{AuditError, AuditErrorKind};
use cofferdam_core::error::{HostError, HostErrorKind};
use tokio_postgres::error::SqlState;

use super::DatabaseSettings;

/// The kind of a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// The settings of the connection cannot work.
    Settings,
    /// It would be reached by plain text, without leave.
    PlainText,
    /// It cannot be reached, or the connection was lost.
    Unreachable,
    /// It refuses the role or the password, or the role lacks a permission.
    Refused,
    /// The role is a superuser.
    Superuser,
    /// Another program's tables are in it, or something else than a host made the tables.
    Foreign,
    /// The server is too old.
    TooOld,
    /// A newer version of this program made the tables.
    TooNew,
    /// It belongs to another cluster.
    OtherCluster,
    /// `host.key` is missing or cannot be used.
    Key,
    /// It may not be written: it is a standby, or read-only.
    ReadOnly,
    /// There is no room in it.
    Full,
    /// It has no connection left, or something is locked for too long.
    Busy,
    /// A statement failed.
    Failed,
}

/// An error of the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DatabaseError {
    kind: DatabaseErrorKind,
    what: Arc<str>,
    fix: Arc<str>,
    /// The condition that the server reported, as SQLSTATE.
    state: Option<SqlState>,
}

impl DatabaseError {
    /// Creates an error: `what` is a clause without a full stop, `fix` is full sentences.
    #[must_use]
    pub fn new(kind: DatabaseErrorKind, what: impl fmt::Display, fix: impl fmt::Display) -> Self {
        Self { kind, what: what.to_string().into(), fix: fix.to_string().into(), state: None }
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> DatabaseErrorKind {
        self.kind
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }

    /// Returns the condition that the server reported, if it was the server.
    #[must_use]
    pub fn state(&self) -> Option<&SqlState> {
        self.state.as_ref()
    }

    /// Returns true if the error may be temporary.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use DatabaseErrorKind as Kind;
        matches!(self.kind, Kind::Unreachable | Kind::ReadOnly | Kind::Full | Kind::Busy | Kind::Failed)
    }

    /// Creates the error of a database that is not reached.
    pub(crate) fn unreachable(settings: &DatabaseSettings, why: impl fmt::Display) -> Self {
        let what = format!("the database at {} cannot be reached: {why}", settings.place());
        Self::new(
            DatabaseErrorKind::Unreachable,
            what,
            "See that it runs and can be reached, and call again.",
        )
    }

    /// Creates the error of a statement that is not answered in time.
    pub(crate) fn unanswered() -> Self {
        let fix = "See what holds the database up, and that a standby confirms its commits; then call again.";
        Self::new(DatabaseErrorKind::Unreachable, "the database does not answer in time", fix)
    }

    pub(super) fn without_roots(settings: &DatabaseSettings) -> Self {
        let what = format!(
            "the database at {} cannot be reached: no certificate authority is trusted",
            settings.place()
        );
        let fix = "Install the certificate authorities of the system, or name them in `[network] extra_roots` of \
                   config.toml.";
        Self::new(DatabaseErrorKind::Settings, what, fix)
    }

    /// Converts an error of connecting.
    pub(super) fn from_connecting(settings: &DatabaseSettings, error: &tokio_postgres::Error) -> Self {
        let place = settings.place();
        if let Some(state) = error.code() {
            let own = Self::from_sql(error);
            if own.kind != DatabaseErrorKind::Failed {
                return own;
            }
            let what = format!("the database at {place} refuses the connection: {}", reason(error));
            let fix = "Check role, password and database in the URL of the database.";
            return Self { state: Some(state.clone()), ..Self::new(DatabaseErrorKind::Refused, what, fix) };
        }
        let text = reason(error);
        if text.contains("password") {
            let fix = "Give it by `[audit] password_file` in config.toml, or by COFFERDAM_AUDIT_PASSWORD.";
            let what = format!("the database at {place} asks for a password");
            return Self::new(DatabaseErrorKind::Refused, what, fix);
        }
        if text.contains("TLS") {
            let what = format!("the database at {place} cannot be reached by TLS: {text}");
            let fix = "Set up TLS at the server, with a certificate for the name in the URL from an authority that \
                       `[network]` of config.toml trusts.";
            return Self::new(DatabaseErrorKind::Unreachable, what, fix);
        }
        if text.contains("does not allow writes") {
            return Self::read_only(&format!("no server of {place} is one that writes"));
        }
        Self::unreachable(settings, text)
    }

    /// Converts the error of a statement.
    #[must_use]
    pub fn from_sql(error: &tokio_postgres::Error) -> Self {
        use DatabaseErrorKind as Kind;
        let Some(state) = error.code() else {
            let fix = "See that the database runs and can be reached, and call again.";
            return Self::new(
                Kind::Unreachable,
                format_args!("the connection was lost: {}", reason(error)),
                fix,
            );
        };
        let text = reason(error);
        let class = state.code().get(..2).unwrap_or_default();
        let own = match state.code() {
            _ if *state == SqlState::DISK_FULL => {
                Self::new(Kind::Full, text, "Make room on the disk of the database, and call again.")
            }
            _ if *state == SqlState::READ_ONLY_SQL_TRANSACTION => Self::read_only(&text),
            // The server is being shut down, or begins.
            "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => {
                Self::new(Kind::Unreachable, text, "See that the database runs, and call again.")
            }
            _ if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
                let fix = "Let the role own the database and its schema `cofferdam`: \
                           ALTER DATABASE name OWNER TO role.";
                Self::new(Kind::Refused, text, fix)
            }
            _ if class == "28" => {
                let fix = "Check the role and its password: `[audit] password_file` in config.toml, or \
                           COFFERDAM_AUDIT_PASSWORD.";
                Self::new(Kind::Refused, text, fix)
            }
            _ if class == "3D" => {
                Self::new(Kind::Refused, text, "Make the database: CREATE DATABASE name OWNER role.")
            }
            _ if class == "53" || class == "55" || class == "40" => {
                let fix =
                    "See what holds the database up, and how many connections it allows; then call again.";
                Self::new(Kind::Busy, text, fix)
            }
            _ if class == "08" => {
                Self::new(Kind::Unreachable, text, "See that the database runs, and call again.")
            }
            _ => Self::new(Kind::Failed, text, "The log of the database says more."),
        };
        Self { state: Some(state.clone()), ..own }
    }

    pub(super) fn read_only(what: &str) -> Self {
        let fix = "Name the server that writes. With several hosts in the URL, the one that writes is found.";
        Self::new(DatabaseErrorKind::ReadOnly, what, fix)
    }
}

/// Returns what went wrong, without values of parameters.
fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    // The driver's own texts name the step, their sources the reason.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for DatabaseError {}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::from_sql(&error)
    }
}

impl From<DatabaseError> for AuditError {
    fn from(error: DatabaseError) -> Self {
        use DatabaseErrorKind as Kind;
        let kind = match error.kind {
            Kind::Unreachable | Kind::Busy => AuditErrorKind::Unreachable,
            Kind::TooNew => AuditErrorKind::TooNew,
            Kind::ReadOnly => AuditErrorKind::ReadOnly,
            Kind::Full => AuditErrorKind::Full,
            Kind::Settings
            | Kind::PlainText
            | Kind::Refused
            | Kind::Superuser
            | Kind::Foreign
            | Kind::TooOld
            | Kind::OtherCluster
            | Kind::Key => AuditErrorKind::Refused,
            Kind::Failed => AuditErrorKind::Other,
        };
        Self::new(kind, &error.what).with_fix(&error.fix)
    }
}

impl From<DatabaseError> for HostError {
    fn from(error: DatabaseError) -> Self {
        let kind = match error.kind {
            DatabaseErrorKind::Settings | DatabaseErrorKind::PlainText => HostErrorKind::Configuration,
            _ => HostErrorKind::AuditUnavailable,
        };
        let mut what = error.what.to_string();
        if let Some(first) = what.get(..1).map(str::to_uppercase) {
            what.replace_range(..1, &first);
        }
        Self::new(kind, format!("{what}.")).with_hint(&*error.fix)
    }
}
