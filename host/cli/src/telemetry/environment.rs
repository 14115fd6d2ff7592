//! The environment variables of OpenTelemetry that decide whether, how and how long spans are sent.
//!
//! Those that only name things are read by the SDK itself: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`. No value is ever shown: an address
//! or a header may carry a credential.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

/// How long one export may take, and so how long the command may wait at its end, where nobody says.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtlpVariables {
    /// How long one export may take.
    pub(super) timeout: Duration,
    /// The certificate authorities to believe, in place of the platform's.
    pub(super) certificate: Option<PathBuf>,
}

impl OtlpVariables {
    /// What the environment asks for: nothing, unless it names a collector.
    ///
    /// # Errors
    /// What is wrong with it, in words for the operator.
    pub(super) fn read() -> Result<Option<Self>, String> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let get =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        // The variable of traces alone stands above the one of all signals.
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
        let address = endpoint
            .parse::<Uri>()
            .ok()
            .filter(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
        if address.is_none() {
            return Err(format!("{name} is not an address like http://localhost:4318"));
        }
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
        Ok(Some(Self { timeout, certificate }))
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
    fn only_an_address_turns_it_on_and_others_turn_it_off_again() {
        let on = OtlpVariables { timeout: TIMEOUT, certificate: None };
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
    fn what_is_of_traces_alone_stands_above_what_is_of_all() {
        let timeouts = [("OTEL_EXPORTER_OTLP_TIMEOUT", "9"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700")];
        let read = of(&[ENDPOINT, timeouts[0], timeouts[1]]).unwrap().unwrap();
        assert_eq!(read.timeout, Duration::from_millis(700));
    }

    #[test]
    fn what_cannot_be_meant_is_said_without_its_value() {
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
