//! Every way to misbehave, one operation each: for tests of the host and for tours of its failures.

mod hoard;
mod resources;
mod several;
mod surroundings;
mod talk;

use cofferdam_guest::{Failure, NetworkPhase, call, connector, log};

connector!("wit/probe.wit", Probe);

struct Probe;

impl Guest for Probe {
    fn spin() -> Result<(), Failure> {
        resources::spin()
    }

    fn eat_memory() -> Result<u64, Failure> {
        Ok(resources::eat_memory())
    }

    #[allow(clippy::panic, reason = "what this operation is for")]
    fn panic(message: String) -> Result<(), Failure> {
        panic!("{message}")
    }

    fn recurse() -> Result<u64, Failure> {
        Ok(resources::recurse(0))
    }

    fn sleep(ms: u64) -> Result<(), Failure> {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        Ok(())
    }

    fn exit(code: u8) -> Result<(), Failure> {
        std::process::exit(code.into())
    }

    fn fetch(url: String) -> Result<Response, Failure> {
        talk::fetch(url)
    }

    fn swallow_denial(url: String) -> Result<String, Failure> {
        Ok(talk::fetch(url).map_or_else(|failure| failure.to_string(), |response| response.body))
    }

    fn persist(first: String, denied: String, after: String, times: u32) -> Result<u32, Failure> {
        Ok(talk::persist(&first, &denied, &after, times))
    }

    fn quote_answer(url: String) -> Result<(), Failure> {
        talk::quote_answer(url)
    }

    fn trust_answer(url: String) -> Result<String, Failure> {
        Ok(talk::trust_answer(url))
    }

    fn lose_track(first: String, second: String) -> Result<(), Failure> {
        talk::lose_track(&first, &second)
    }

    fn leave_behind(
        methods: Vec<String>,
        url: String,
        awaited: String,
        give_up: bool,
    ) -> Result<u32, Failure> {
        talk::leave_behind(&methods, &url, &awaited, give_up)
    }

    fn post(url: String, body: String) -> Result<Response, Failure> {
        talk::post(url, body)
    }

    fn order(
        url: String,
        body: String,
        labels: Vec<String>,
        patience_ms: Option<u64>,
    ) -> Result<Response, Failure> {
        talk::order(&url, &body, &labels, patience_ms)
    }

    fn order_once(
        url: String,
        body: String,
        labels: Vec<String>,
        patience_ms: Option<u64>,
    ) -> Result<Response, Failure> {
        talk::order(&url, &body, &labels, patience_ms)
    }

    fn post_bytes(url: String, bytes: u64) -> Result<Response, Failure> {
        talk::post_bytes(url, bytes)
    }

    fn fetch_with_fields(url: String, fields: u32, length: u32) -> Result<Response, Failure> {
        talk::fetch_with_fields(url, fields, length)
    }

    fn fetch_with_header(url: String, name: String, value: String) -> Result<Response, Failure> {
        talk::fetch_with_header(url, name, value)
    }

    fn place_handle(
        service: String,
        url: String,
        header: String,
        body: String,
        times: u32,
    ) -> Result<Response, Failure> {
        talk::place_handle(&service, &[url, header, body], times)
    }

    fn fetch_many(url: String, times: u32) -> Result<Vec<u16>, Failure> {
        talk::fetch_many(&url, times)
    }

    fn fetch_all(urls: Vec<String>) -> Result<Fetched, Failure> {
        Ok(several::fetch_all(urls))
    }

    fn post_labelled(url: String, bodies: Vec<String>, label: String) -> Result<Vec<u16>, Failure> {
        several::post_labelled(&url, bodies, &label)
    }

    fn ask(url: String, methods: Vec<Vec<String>>, field: Option<String>) -> Result<u16, Failure> {
        several::ask(&url, &methods, field.as_deref())
    }

    fn suppress(reason: String, cause: String, times: u32) -> Result<(), Failure> {
        (0..times).for_each(|_| log::suppressed(&reason, &cause));
        Ok(())
    }

    fn forge_upstream(status: u16, url: Option<String>) -> Result<(), Failure> {
        talk::forge_upstream(status, url)
    }

    fn forge_network() -> Result<(), Failure> {
        Err(Failure::network(Some(NetworkPhase::Response)).with_detail("forged"))
    }

    fn fail(kind: Kind, message: String, detail: Option<String>) -> Result<(), Failure> {
        let failure = match kind {
            Kind::Upstream => Failure::upstream(500, "as_asked"),
            Kind::Network => Failure::network(None),
            Kind::InvalidInput => Failure::invalid_input("kind", message),
            Kind::Failed => Failure::failed("as_asked", message),
            Kind::FailedTransiently => Failure::transient("as_asked", message),
        };
        Err(match detail {
            Some(detail) => failure.with_detail(detail),
            None => failure,
        })
    }

    fn log_flood(lines: u32, length: u32) -> Result<(), Failure> {
        talk::log_flood(lines, length);
        Ok(())
    }

    fn log_lines(lines: Vec<String>) -> Result<(), Failure> {
        lines.iter().for_each(|line| log::warn(line, &[]));
        Ok(())
    }

    fn stdout_flood(bytes: u64) -> Result<(), Failure> {
        talk::stdout_flood(bytes);
        Ok(())
    }

    fn hoard(way: String, url: String) -> Result<u64, Failure> {
        hoard::hoard(&way, &url)
    }

    fn hoard_result(items: u32) -> Result<Vec<String>, Failure> {
        Ok(hoard::hoard_result(items))
    }

    fn big_result(bytes: u64) -> Result<String, Failure> {
        Ok("x".repeat(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    fn env() -> Result<Surroundings, Failure> {
        Ok(surroundings::look())
    }

    fn clock() -> Result<Clocks, Failure> {
        Ok(surroundings::clocks())
    }

    fn random(bytes: u64) -> Result<Vec<u8>, Failure> {
        Ok(surroundings::random(bytes))
    }

    fn call_info() -> Result<CallFacts, Failure> {
        Ok(CallFacts {
            idempotency_key: call::idempotency_key(),
            attempt: call::attempt(),
            deadline_ms: call::deadline(),
        })
    }
}
