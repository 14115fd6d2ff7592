//! The settings of connections to a database: its URL, the password, and whether plain text is allowed.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use zeroize::Zeroizing;

use super::{DatabaseError, DatabaseErrorKind};

/// The schemes of URLs.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The parameters of a URL that are understood. Others could change what is durable, or whom is trusted.
const PARAMETERS: [&str; 14] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "channel_binding",
    "application_name",
];

/// The maximum time until one address answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which a silent connection is probed, and after which one that acknowledges nothing is given up.
const KEEPALIVE: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(15);

/// The settings of connections to a database.
#[derive(Clone)]
pub struct DatabaseSettings {
    config: Config,
    has_tls: bool,
    /// The servers and the database, without role and password.
    place: String,
    has_url_password: bool,
    /// Read for each connection: the password may be another one by then.
    password: Option<PasswordSource>,
}

/// Reads the password of a role.
pub type PasswordSource = Arc<dyn Fn() -> Result<Zeroizing<String>, DatabaseError> + Send + Sync>;

impl DatabaseSettings {
    /// Reads the URL of a database: `postgres://role@host:port,host:port/database?sslmode=require`. Texts in it may be
    /// percent-encoded. With `plain_text`, servers beyond this machine may be spoken to without TLS.
    ///
    /// `sslmode` is `disable`, or one of `require`, `verify-ca` and `verify-full`, which all verify certificate and name.
    /// Without it, TLS is spoken to servers that are not on this machine.
    ///
    /// # Errors
    /// `PlainText`: it would be reached by plain text without leave; `Settings`: it is not the URL of a database.
    pub fn parse(url: &str, plain_text: bool) -> Result<Self, DatabaseError> {
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(wrong("does not begin with postgres://"));
        }
        let (rest, query) = url.split_once('?').map_or((url, ""), |(rest, query)| (rest, query));
        let (mut mode, mut kept) = (None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "sslmode" => mode = Some(tls_mode(value)?),
                "sslrootcert" => {
                    let fix = "Name the certificate authority in `[network] extra_roots` of config.toml.";
                    let what = "the URL of the database names certificate authorities";
                    return Err(DatabaseError::new(DatabaseErrorKind::Settings, what, fix));
                }
                name if PARAMETERS.contains(&name) => kept.push(parameter),
                // The server that writes is asked for below.
                "target_session_attrs" => {}
                _ => return Err(wrong("has a parameter that is not known, or not allowed")),
            }
        }
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        // The driver's error may quote the URL.
        let config = Config::from_str(&format!("{rest}{query}")).map_err(|_| wrong("cannot be read"))?;
        Self::checked(config, mode, plain_text)
    }

    fn checked(mut config: Config, mode: Option<bool>, plain_text: bool) -> Result<Self, DatabaseError> {
        if config.get_user().is_none_or(str::is_empty) {
            return Err(wrong("names no role"));
        }
        let Some(database) = config.get_dbname().filter(|name| !name.is_empty()).map(str::to_owned) else {
            return Err(wrong("names no database"));
        };
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("names no host"));
        }
        let place = format!("{}/{database}", servers(&config));
        let is_local = is_local(&config);
        let has_tls = mode.unwrap_or(!is_local);
        if !has_tls && !is_local && !plain_text {
            let what = format!("the database at {place} would be reached by plain text, without leave");
            let fix = "Remove sslmode=disable from the URL, so that TLS is spoken. On a network where nobody else \
                       listens, `[audit] plain_text = true` in config.toml allows plain text.";
            return Err(DatabaseError::new(DatabaseErrorKind::PlainText, what, fix));
        }
        if has_tls && config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_))) {
            return Err(wrong("asks for TLS on a socket of this machine, which has none"));
        }
        config.ssl_mode(if has_tls { SslMode::Require } else { SslMode::Disable });
        config.application_name("cofferdam");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE));
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE / 3);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(3);
        }
        if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let has_url_password = config.get_password().is_some();
        Ok(Self { config, has_tls, place, has_url_password, password: None })
    }

    /// Sets the password, in the place of the URL's.
    #[must_use]
    pub fn password(mut self, password: &Zeroizing<String>) -> Self {
        self.config.password(password.as_bytes());
        self
    }

    /// Has the password read for each connection, in the place of the URL's.
    #[must_use]
    pub fn password_from(mut self, source: PasswordSource) -> Self {
        self.password = Some(source);
        self
    }

    /// Returns true if the password was in the URL.
    #[must_use]
    pub fn has_url_password(&self) -> bool {
        self.has_url_password
    }

    /// Returns the servers and the database, for messages.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns true if TLS is spoken.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }

    #[cfg(test)]
    fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the settings for one connection.
    pub(super) fn config_now(&self) -> Result<Config, DatabaseError> {
        let mut config = self.config.clone();
        if let Some(read) = &self.password {
            config.password(read()?.as_bytes());
        }
        Ok(config)
    }

    /// Returns the name of the role.
    pub(super) fn role(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// Returns the name of the database.
    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }
}

impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSettings")
            .field("place", &self.place)
            .field("has_tls", &self.has_tls)
            .finish()
    }
}

impl PartialEq for DatabaseSettings {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.has_tls == other.has_tls
    }
}

/// Parses `sslmode`: true for TLS, which is always verified.
fn tls_mode(text: &str) -> Result<bool, DatabaseError> {
    match text {
        "disable" => Ok(false),
        "require" | "verify-ca" | "verify-full" => Ok(true),
        _ => Err(wrong("has an sslmode that is neither `disable` nor `require`")),
    }
}

/// Returns true if all servers are on this machine.
fn is_local(config: &Config) -> bool {
    if !config.get_hostaddrs().is_empty() {
        return config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let address = name.parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    })
}

fn servers(config: &Config) -> String {
    let port = |at: usize| {
        let ports = config.get_ports();
        ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432)
    };
    let name = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts = config.get_hosts();
    let names: Vec<_> = match hosts.is_empty() {
        true => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
        false => hosts.iter().map(name).collect(),
    };
    let servers = names.iter().enumerate().map(|(at, name)| format!("{name}:{}", port(at)));
    cofferdam_core::failure::sanitize_line(&servers.collect::<Vec<_>>().join(","), 200)
}

fn wrong(what: &str) -> DatabaseError {
    let what = format!("the URL of the database {what}");
    let fix = "Write it like \"postgres://role@db.example:5432/cofferdam\"; special characters are percent-encoded.";
    DatabaseError::new(DatabaseErrorKind::Settings, what, fix)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn parse(url: &str) -> Result<DatabaseSettings, DatabaseError> {
        DatabaseSettings::parse(url, false)
    }

    #[test]
    fn urls_are_read_with_their_encoding() {
        let settings = parse("postgres://us%40r:p%2Fw%3F@localhost:5433/da%20ta").unwrap();
        assert_eq!((settings.role(), settings.database()), ("us@r", "da ta"));
        assert_eq!(settings.config().get_password(), Some(&b"p/w?"[..]));
        assert_eq!(settings.place(), "localhost:5433/da ta");
        assert!(settings.has_url_password() && !settings.has_tls());
        let several = parse("postgresql://cofferdam@a.example:1,b.example:2/x").unwrap();
        assert_eq!(several.place(), "a.example:1,b.example:2/x");
        assert!(several.has_tls());
        assert_eq!(several.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let socket = parse("postgres://cofferdam@%2Fvar%2Frun%2Fpostgresql/x").unwrap();
        assert!(!socket.has_tls());
    }

    #[test]
    fn plain_text_needs_leave() {
        for url in
            ["postgres://r@db.example/x?sslmode=disable", "postgres://r@10.0.0.1,localhost/x?sslmode=disable"]
        {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), DatabaseErrorKind::PlainText, "{url}: {error}");
            assert!(!DatabaseSettings::parse(url, true).unwrap().has_tls());
        }
        for local in ["localhost", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert!(!parse(&format!("postgres://r@{local}/x")).unwrap().has_tls(), "{local}");
            assert!(parse(&format!("postgres://r@{local}/x?sslmode=verify-full")).unwrap().has_tls());
        }
        // A name of this machine whose address is another one is not this machine.
        let named = parse("postgres://r@localhost/x?hostaddr=10.0.0.1&sslmode=disable").unwrap_err();
        assert_eq!(named.kind(), DatabaseErrorKind::PlainText);
    }

    #[test]
    fn other_urls_are_refused_without_quoting_them() {
        for url in [
            "mysql://r:hunter2@localhost/x",
            "postgres://:hunter2@localhost/x",
            "postgres://r:hunter2@localhost",
            "postgres://r:hunter2@/x",
            "postgres://r:hunter2@localhost:port/x",
            "postgres://r:hunter2@localhost/x?sslmode=prefer",
            "postgres://r:hunter2@localhost/x?options=-csynchronous_commit%3Doff",
            "postgres://r:hunter2@localhost/x?sslrootcert=/ca.pem",
            "postgres://r:hunter2@%2Frun/x?sslmode=require",
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), DatabaseErrorKind::Settings, "{url}");
            let text = format!("{error} {error:?} {}", error.fix());
            assert!(!text.contains("hunter2"), "{text}");
        }
        let settings = parse("postgres://r:hunter2@localhost/x").unwrap();
        assert!(!format!("{settings:?} {}", settings.place()).contains("hunter2"));
    }
}
