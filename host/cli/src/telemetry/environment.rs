//! The environment variables of OpenTelemetry that decide whether, how and how long spans are sent.
//!
//! Those that only name things are read by the SDK itself: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`. No value is ever shown: an address
//! or a header may carry a credential.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// The default timeout of one export, and so the longest wait of a command at its end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The export that the environment asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtlpVariables {
    /// The collector's host and port.
    pub(super) address: String,
    /// True if the collector is reached over TLS.
    pub(super) secure: bool,
    /// The timeout of one export.
    pub(super) timeout: Duration,
    /// The file of certificate authorities to trust instead of the platform's.
    pub(super) certificate: Option<PathBuf>,
}

impl OtlpVariables {
    /// Reads the environment; none unless it names a collector.
    ///
    /// # Errors
    /// The fault in it, for the operator.
    pub(super) fn read() -> Result<Option<Self>, String> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let get =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        // The variable of traces takes precedence over the one of all signals.
        let either = |name: &str| {
            let traces = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let all = format!("OTEL_EXPORTER_OTLP_{name}");
            get(&traces).map(|text| (traces, text)).or_else(|| get(&all).map(|text| (all, text)))
        };
        let disabled = get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let Some((name, endpoint)) = either("ENDPOINT").filter(|_| !disabled) else { return Ok(None) };
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(_) => return Err("OTEL_TRACES_EXPORTER is neither `otlp` nor `none`".into()),
        }
        let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let address = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
        let Some((host, port)) = address else {
            return Err(format!("{name} is not an address like http://localhost:4318"));
        };
        if let Some((name, protocol)) = either("PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(format!(
                "{name} asks for another protocol than `http/protobuf`, the one that is spoken"
            ));
        }
        let timeout = match either("TIMEOUT") {
            None => TIMEOUT,
            Some((name, text)) => match text.parse() {
                Ok(ms @ 1..) => Duration::from_millis(ms),
                _ => return Err(format!("{name} is not a number of milliseconds above zero")),
            },
        };
        let certificate = either("CERTIFICATE").map(|(_, path)| path.into());
        let secure = url.as_ref().is_some_and(|url| url.scheme() == "https");
        Ok(Some(Self { address: format!("{host}:{port}"), secure, timeout, certificate }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");

    fn of(variables: &[(&str, &str)]) -> Result<Option<OtlpVariables>, String> {
        OtlpVariables::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn only_an_endpoint_enables_export() {
        let address = "localhost:4318".to_owned();
        let on = OtlpVariables { address, secure: false, timeout: TIMEOUT, certificate: None };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None));
        assert_eq!(of(&[ENDPOINT]), Ok(Some(on)));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(of(&[ENDPOINT, off]), Ok(None));
        }
        assert!(
            of(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c.example/v1/traces")]).unwrap().is_some()
        );
    }

    #[test]
    fn trace_variables_override_general_ones() {
        let timeouts = [("OTEL_EXPORTER_OTLP_TIMEOUT", "9"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700")];
        let read = of(&[ENDPOINT, timeouts[0], timeouts[1]]).unwrap().unwrap();
        assert_eq!(read.timeout, Duration::from_millis(700));
    }

    #[test]
    fn invalid_variables_are_reported_without_values() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "token:hunter2"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://hunter2"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "hunter2"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "hunter2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "hunter2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_EXPORTER", "hunter2"),
        ] {
            let warning = of(&[(name, value), ENDPOINT]).unwrap_err();
            assert!(warning.contains(name) && !warning.contains("hunter2"), "{warning}");
        }
    }
}
