//! Reports: what the console shows, as files that need no server.

use cofferdam_audit::{DurationPercentiles, StatsReport};
use cofferdam_core::error::{Error, HostError};
use cofferdam_server::http_api::{CallPage, ConnectorView, HttpApi, NetworkReport};
use maud::{Markup, html};

use crate::format::{duration, number, percent, plain};
use crate::frame::{Area, Page, table, time};
use crate::{call_pages, connector_pages, network_page};

/// The most failed calls that a report lists.
const FAILED: &str = "200";

/// The period of a report: the times that calls were received at, as RFC 3339, from one and before the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Period {
    /// The beginning; none for the first call on record.
    pub since: Option<String>,
    /// The end; none for now.
    pub until: Option<String>,
}

impl Period {
    fn parameters(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let times = [("since", &self.since), ("until", &self.until)];
        let times = times.into_iter().filter_map(|(name, time)| Some((name, time.as_deref()?)));
        let pairs = times.chain(more.iter().copied());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Returns the report of a connector, as HTML: what it may do, and its limits with what calls used of them. `made` says when
/// it was made, and by what.
///
/// # Errors
/// There is no such connector, or it cannot be read.
pub async fn connector_report(api: &HttpApi, name: &str, made: &str) -> Result<String, Error> {
    // Other versions are links to differences, which a file cannot have.
    let connector = ConnectorView { versions: Vec::new(), ..api.connector(name).await? };
    Ok(connector_pages::load(api, &connector, None).await.standalone(made))
}

/// Returns the report of a period, as HTML: how calls ended, by connector, operation and host, the requests of connectors
/// as a map and as tables, and the newest calls that failed.
///
/// # Errors
/// The period is not acceptable, or the audit log or the index of packages cannot be read.
pub async fn period_report(api: &HttpApi, period: &Period, made: &str) -> Result<String, HostError> {
    let stats = async |by: &str| api.stats(period.parameters(&[("by", by)])).await;
    let connectors = stats("connector").await?;
    let groups = [("Operations", stats("operation").await?), ("Hosts", stats("host").await?)];
    let network = api.network(period.parameters(&[])).await?;
    // Numbers are of whole hours, and so is the list.
    let period = Period { since: connectors.since.clone(), until: connectors.until.clone() };
    let failed = api.calls(period.parameters(&[("failed", "true"), ("limit", FAILED)])).await?;
    Ok(page(&period, &connectors, &groups, &network, &failed).standalone(made))
}

fn page(
    period: &Period,
    connectors: &StatsReport,
    groups: &[(&str, StatsReport)],
    network: &NetworkReport,
    failed: &CallPage,
) -> Page {
    let body = html! {
        p {
            "Received from " (since(period.since.as_deref())) " until " (until(period.until.as_deref()))
            ": whole hours."
        }
        dl {
            dt { "Calls that ended" } dd { (number(connectors.calls)) }
            dt { "Without a value" } dd { (number(connectors.failed)) ", " (percent(connectors.failed, connectors.calls)) }
            dt { "Without an end" } dd { (number(connectors.incomplete)) " of hosts that are gone, " (number(connectors.running)) " that run" }
            dt { "Durations" } dd { (durations(&connectors.durations)) }
        }
        h2 { "Outcomes" }
        (outcomes(connectors))
        h2 { "Connectors" }
        (names("Connectors", connectors))
        @for (title, stats) in groups { h2 { (title) } (names(title, stats)) }
        h2 { "Network" }
        (network_page::requests(network))
        h2 { "Failed calls" }
        @if failed.calls.is_empty() {
            p { "None." }
        } @else {
            @if failed.next.is_some() { p { "The newest " (FAILED) "." } }
            (call_pages::calls_table("Failed calls", &failed.calls))
        }
    };
    Page::new(Area::Calls, "Calls on record", body)
}

fn since(at: Option<&str>) -> Markup {
    html! { @match at { Some(_) => (time(at)), None => "the first call on record" } }
}

fn until(at: Option<&str>) -> Markup {
    html! { @match at { Some(_) => (time(at)), None => "now" } }
}

fn durations(of: &DurationPercentiles) -> String {
    let named = of.named().map(|(name, micros)| format!("{name} {}", duration(micros)));
    named.collect::<Vec<_>>().join(", ")
}

fn outcomes(stats: &StatsReport) -> Markup {
    let rows = html! {
        @for outcome in &stats.by_class {
            tr {
                th scope="row" { (outcome.status) }
                td { (plain(outcome.class.as_deref().unwrap_or("-"))) }
                td.number { (number(outcome.calls)) }
                td.number { (percent(outcome.calls, stats.calls)) }
                td { (durations(&outcome.durations)) }
            }
        }
    };
    table("Outcomes", &["Status", "Class", "Calls", "Share", "Durations"], &rows)
}

fn names(title: &str, stats: &StatsReport) -> Markup {
    let rows = html! {
        @for named in stats.names() {
            tr {
                th.wide scope="row" { (plain(&named.name)) }
                td.number { (number(named.calls)) }
                td.number { (number(named.failed)) }
                td.number { (percent(named.failed, named.calls)) }
                td { (durations(&named.durations)) }
            }
        }
    };
    table(title, &["Name", "Calls", "Failed", "Share", "Durations"], &rows)
}

#[cfg(test)]
mod tests {
    use cofferdam_audit::{Stats, StatsGrouping};
    use cofferdam_server::http_api::{NetworkRoute, UnusedHost};

    use super::*;

    fn report(network: &NetworkReport) -> String {
        let stats =
            || StatsReport::new(&Stats::default(), &Stats::default(), StatsGrouping::default(), Vec::new());
        let none = CallPage { calls: Vec::new(), next: None };
        page(&Period::default(), &stats(), &[("Hosts", stats())], network, &none).standalone("Made now.")
    }

    #[test]
    fn a_period_has_its_requests_without_links() {
        let route = NetworkRoute {
            connector: "github://acme/slack@1.0.0".to_owned(),
            op: "post".to_owned(),
            host: "slack.com:443".to_owned(),
            requests: 3,
            answered: 3,
            ..NetworkRoute::default()
        };
        let unused = UnusedHost {
            connector: "github://acme/slack@1.0.0".to_owned(),
            host: "files.slack.com:443".to_owned(),
        };
        let network = NetworkReport { routes: vec![route], unused: vec![unused], unreadable: Vec::new() };
        let report = report(&network);
        for shown in [
            "<svg class=\"map\"",
            "<th class=\"wide\" scope=\"row\">github://acme/slack@1.0.0</th>",
            "<code>files.slack.com:443</code>",
        ] {
            assert!(report.contains(shown), "{shown}: {report}");
        }
        assert!(!report.contains("<a ") && !report.contains("href="), "{report}");
    }
}
