//! The pages about connectors: all that are installed, and what one of them may do.

use cofferdam_audit::StatsReport;
use cofferdam_core::error::Error;
use cofferdam_server::http_api::{
    AcceptanceView, CircuitState, ConnectorDifference, ConnectorList, ConnectorSummary, ConnectorView,
    CredentialGrantView, ErrorMessage, HttpApi, NetworkReport, OperationDescription, VersionChange,
    error_message,
};
use maud::{Markup, html};

use crate::format::{bytes, encoded, number, percent, plain};
use crate::frame::{Area, Page, error_text, table, time};
use crate::headroom;
use crate::router::CONSOLE;

/// Returns the path of the page about a connector; with its version, as the HTTP API has it.
fn path(connector: &ConnectorSummary) -> String {
    let name = connector.name.replacen("://", "/", 1);
    let segments: Vec<_> = name.split('/').map(encoded).collect();
    format!("{CONSOLE}/connectors/{}@{}", segments.join("/"), encoded(&connector.version))
}

/// Returns the path of the calls of a connector.
fn calls_path(connector: &ConnectorSummary, failed: bool) -> String {
    let text = encoded(&format!("{}@{}", connector.name, connector.version));
    format!("{CONSOLE}/calls?connector={text}{}", if failed { "&failed=true" } else { "" })
}

/// The page about all connectors.
pub(crate) fn list(list: &ConnectorList) -> Page {
    let header =
        ["Connector", "Active", "Accepted", "Calls", "Failed", "Last call", "Circuits", "Signed by", "Hash"];
    let rows = html! {
        @for connector in &list.connectors {
            tr {
                th.wide scope="row" { a href=(path(connector)) { (plain(&connector.name)) "@" (plain(&connector.version)) } }
                td { (if connector.active { "yes" } else { "no" }) }
                td.wide { (accepted(connector.accepted.as_ref())) }
                td.number { (count(connector.calls)) }
                td.number { (failures(connector)) }
                td { (time(connector.last_call.as_deref())) }
                td { (circuits(&connector.circuits)) }
                td.wide { (signers(connector.accepted.as_ref().map_or(&[], |accepted| accepted.signers.as_slice()))) }
                td.wide { code { (plain(&connector.hash)) } }
            }
        }
    };
    let body = html! {
        div #present {
            @if list.connectors.is_empty() {
                p { "No connector is installed. " code { "cofferdam install PACKAGE" } " installs one." }
            } @else {
                (table("Installed connectors", &header, &rows))
            }
        }
    };
    Page::new(Area::Connectors, "Connectors", body)
}

fn count(calls: Option<u64>) -> String {
    calls.map_or_else(|| "unknown".to_owned(), number)
}

fn failures(connector: &ConnectorSummary) -> Markup {
    html! {
        @match (connector.failed, connector.calls) {
            (Some(0), _) => "0",
            (Some(failed), Some(calls)) => {
                a href=(calls_path(connector, true)) { (number(failed)) } " (" (percent(failed, calls)) ")"
            },
            _ => "unknown",
        }
    }
}

fn signers(signers: &[String]) -> Markup {
    html! {
        @if signers.is_empty() { "nobody" }
        @for signer in signers { div { code { (plain(signer)) } } }
    }
}

fn accepted(acceptance: Option<&AcceptanceView>) -> Markup {
    html! {
        @match acceptance {
            Some(acceptance) => {
                (time(Some(&acceptance.at))) " by " (plain(&acceptance.by))
                @if let Some(version) = &acceptance.no_wider_than { ", no wider than " (plain(version)) }
            },
            None => span.bad { "not accepted" },
        }
    }
}

fn circuits(circuits: &[CircuitState]) -> Markup {
    html! {
        @if circuits.is_empty() { "closed" }
        @for circuit in circuits {
            div {
                span.bad[circuit.state == "open"].doubtful[circuit.state == "half_open"] { (plain(&circuit.state)) }
                " to " (plain(&circuit.host)) ", " (circuit.failures) " failures"
            }
        }
    }
}

/// Reads the calls of a connector from `api`, and the changes from the version `from` if one is given. Returns the page
/// about it.
pub(crate) async fn load(api: &HttpApi, connector: &ConnectorView, from: Option<String>) -> Page {
    let name = format!("{}@{}", connector.summary.name, connector.summary.version);
    let parameters = |more: &[(&str, &str)]| {
        let all = [("connector", name.as_str())].into_iter().chain(more.iter().copied());
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    let stats = api.stats(parameters(&[("usage", "true"), ("by", "connector")])).await.ok();
    let network = api.network(parameters(&[])).await.ok();
    let difference = match from {
        Some(from) => Some(api.difference(&name, vec![("from".to_owned(), from)]).await),
        None => None,
    };
    show(connector, stats.as_ref(), network.as_ref(), difference.as_ref())
}

/// The page about one connector. `stats` are those of its calls, with their usage, and `network` its requests; none if they
/// cannot be read. `difference` is the one that is asked for; the page has the status of the error if there is none.
pub(crate) fn show(
    connector: &ConnectorView,
    stats: Option<&StatsReport>,
    network: Option<&NetworkReport>,
    difference: Option<&Result<ConnectorDifference, Error>>,
) -> Page {
    let summary = &connector.summary;
    let difference = difference.map(|difference| difference.as_ref().map_err(error_message));
    let usage = stats.and_then(|stats| stats.names().next()).and_then(|named| named.usage.as_ref());
    let body = html! {
        @if let Some(description) = &connector.description { p { (plain(description)) } }
        p {
            a href=(calls_path(summary, false)) { (count(summary.calls)) " calls" } ", " (failures(summary)) " failed, last "
            (time(summary.last_call.as_deref()))
        }
        @if !connector.notes.is_empty() {
            h2 { "Look at" }
            ul { @for note in &connector.notes { li.doubtful { (plain(note)) } } }
        }
        @if !connector.versions.is_empty() || difference.is_some() {
            h2 { "Difference to another version" }
            (comparison(summary, &connector.versions, difference.as_ref()))
        }
        h2 { "Identity" }
        (identity(connector))
        h2 { "Grants" }
        (grants(connector, network))
        h2 { "Limits" }
        (headroom::limits(&connector.limits, usage))
        h2 { "Operations" }
        @for operation in &connector.operations { (describe(operation)) }
    };
    let title = format!("{}@{}", plain(&summary.name), plain(&summary.version));
    let mut page = Page::new(Area::Connectors, title, body);
    if let Some(Err(message)) = &difference {
        page.status = message.status;
    }
    page
}

/// Returns links to the differences from other versions, and the one that is asked for, or the reason why there is none.
fn comparison(
    summary: &ConnectorSummary,
    versions: &[String],
    difference: Option<&Result<&ConnectorDifference, ErrorMessage>>,
) -> Markup {
    let shown = difference.and_then(|difference| difference.as_ref().ok()).map(|it| &it.before.version);
    html! {
        @if !versions.is_empty() {
            nav aria-label="Versions to compare with" {
                ul.choice {
                    @for version in versions {
                        li {
                            a href=(format!("{}?from={}", path(summary), encoded(version)))
                                aria-current=[(shown == Some(version)).then_some("true")] { "From " (plain(version)) }
                        }
                    }
                }
            }
        }
        @match difference {
            Some(Ok(difference)) => (changes(difference)),
            Some(Err(message)) => (error_text(message)),
            None => "",
        }
    }
}

fn changes(difference: &ConnectorDifference) -> Markup {
    let before = &difference.before;
    let header = ["Severity", "Part", "Subject", "Change", "Before", "After"];
    let rows = html! { @for change in &difference.changes { (change_row(change)) } };
    html! {
        p {
            "Compared with " (plain(&before.version)) " (" code { (plain(&before.hash)) } "), "
            @if difference.wider { span.bad { "it may do more, or its signer or its source repository changed" } }
            @else { span.good { "it may do no more" } }
            "."
        }
        @if difference.changes.is_empty() { p { "There is no difference." } }
        @else { (table("Changes, the heaviest first", &header, &rows)) }
    }
}

fn change_row(change: &VersionChange) -> Markup {
    let style = match change.severity.as_str() {
        "wider" => "bad",
        "narrower" | "note" => "good",
        _ => "doubtful",
    };
    let state = |state: Option<&str>| {
        html! {
            @match state.filter(|text| !text.is_empty()) {
                Some(text) => code { (plain(text)) },
                None => "-",
            }
        }
    };
    html! {
        tr {
            th scope="row" { span class=(style) { (plain(&change.severity)) } }
            td { (plain(&change.part)) }
            td.wide { code { (plain(&change.subject)) } }
            td.wide { (plain(&change.what)) }
            td.wide { (state(change.before.as_deref())) }
            td.wide { (state(change.after.as_deref())) }
        }
    }
}

fn identity(connector: &ConnectorView) -> Markup {
    let (summary, signature) = (&connector.summary, &connector.signature);
    html! {
        dl {
            dt { "Hash" } dd { code { (plain(&summary.hash)) } }
            dt { "Installed bytes" }
            dd {
                @if connector.intact { span.good { "are those of the hash" } }
                @else { span.bad { "CHANGED: they are not those of the hash" } }
            }
            dt { "Signature" }
            dd {
                @if signature.status == "trusted" { span.good { "trusted" } }
                @else { span.bad { "not trusted: " (plain(&signature.status)) } }
                @if let Some(threshold) = signature.threshold { ", " (threshold) " signers needed" }
            }
            dt { "Signers" }
            dd { (signers(&signature.signers)) }
            dt { "Grants accepted" } dd { (accepted(summary.accepted.as_ref())) }
            dt { "Active version" } dd { (if summary.active { "yes" } else { "no: another version is" }) }
            dt { "Size" } dd { (bytes(connector.size)) }
            @if let Some(publisher) = &connector.publisher {
                dt { "Publisher, as the manifest claims" } dd { (plain(publisher)) }
            }
            dt { "Circuits" } dd { (circuits(&summary.circuits)) }
        }
    }
}

fn grants(connector: &ConnectorView, network: Option<&NetworkReport>) -> Markup {
    let grants = &connector.grants;
    let (plumbing, imports): (Vec<_>, Vec<_>) =
        grants.imports.iter().partition(|import| import.standing == "plumbing");
    html! {
        h3 { "Hosts" }
        @if grants.hosts.is_empty() { p.good { "None: it cannot reach any host." } }
        ul {
            @for host in &grants.hosts {
                li {
                    code { (plain(host)) }
                    @if host.starts_with("http://") { " " span.bad { "not encrypted" } }
                    @if let Some(network) = network { " " (requested(host, network)) }
                }
            }
        }
        @if !grants.methods.is_empty() { p { "Methods besides those of every connector: " (plain(&grants.methods.join(", "))) } }
        h3 { "Credentials" }
        @if grants.credentials.is_empty() { p.good { "None." } }
        @else { (credentials(&grants.credentials)) }
        h3 { "Imports" }
        ul {
            @for import in imports {
                li {
                    code { (plain(&import.name)) } " "
                    span.bad[!matches!(import.standing.as_str(), "declared" | "shut")] { (plain(&import.standing)) }
                }
            }
            @if !plumbing.is_empty() { li { (plumbing.len()) " that grant nothing: every connector may have them" } }
        }
    }
}

/// Returns whether requests were sent to a granted host, by the calls on record.
fn requested(grant: &str, network: &NetworkReport) -> Markup {
    let host = grant.split_once("://").map_or(grant, |(_, host)| host);
    let routes = network.routes.iter().filter(|route| route.host == host);
    let sent = routes.map(|route| route.requests.saturating_sub(route.refused)).fold(0, u64::saturating_add);
    html! {
        @match sent {
            0 => span.doubtful { "never requested" },
            1 => span.dim { "requested once" },
            sent => span.dim { "requested " (number(sent)) " times" },
        }
    }
}

fn credentials(credentials: &[CredentialGrantView]) -> Markup {
    let rows = html! {
        @for credential in credentials {
            tr {
                th scope="row" { code { (plain(&credential.name)) } @if credential.optional { " optional" } }
                td {
                    @match credential.bound {
                        Some(true) => span.good { "bound: " (plain(&credential.bindings.join(", "))) },
                        Some(false) => span.doubtful { "not bound" },
                        None => "unknown: the vault cannot be read",
                    }
                }
                td { (plain(&credential.place)) }
                td.wide { (plain(&credential.hosts.join(", "))) }
            }
        }
    };
    table("Credentials", &["Credential", "Binding", "Sent as", "Sent to"], &rows)
}

fn describe(operation: &OperationDescription) -> Markup {
    let effect = operation.effect.as_deref();
    html! {
        h3 { (plain(&operation.name)) }
        pre { code { (plain(&operation.signature)) } }
        @if let Some(docs) = &operation.docs { @for line in docs.lines() { p { (plain(line)) } } }
        dl {
            dt { "Effect" }
            dd {
                span.good[effect == Some("read_only")].doubtful[matches!(effect, None | Some("destructive"))] {
                    (plain(effect.unwrap_or("not declared")))
                }
            }
            dt { "Idempotency" } dd { (plain(&operation.idempotency)) }
            dt { "Repeated by the host" } dd { (plain(&operation.repeat)) }
            @if operation.partial { dt { "Value" } dd { "may be partial: the failed items are in it" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_core::error::{HostError, HostErrorKind};
    use cofferdam_server::http_api::ComparedVersion;

    use super::*;

    fn summary() -> ConnectorSummary {
        ConnectorSummary {
            name: "github://acme/slack".to_owned(),
            version: "1.1.0".to_owned(),
            active: true,
            hash: String::new(),
            accepted: None,
            calls: None,
            failed: None,
            last_call: None,
            circuits: Vec::new(),
        }
    }

    fn difference(severities: &[&str]) -> ConnectorDifference {
        let version = |version: &str| ComparedVersion {
            name: "github://acme/slack".to_owned(),
            version: version.to_owned(),
            hash: "sha256:00".to_owned(),
        };
        let change = |severity: &&str| VersionChange {
            severity: (*severity).to_owned(),
            part: "network".to_owned(),
            subject: "a.example:443".to_owned(),
            what: "it may reach this host as well".to_owned(),
            before: None,
            after: Some("a.example:443".to_owned()),
        };
        ConnectorDifference {
            before: version("1.0.0"),
            after: version("1.1.0"),
            wider: severities.contains(&"wider"),
            changes: severities.iter().map(change).collect(),
        }
    }

    fn compared(difference: Option<&Result<&ConnectorDifference, ErrorMessage>>) -> String {
        let versions = ["2.0.0-rc.1", "1.0.0"].map(str::to_owned);
        comparison(&summary(), &versions, difference).into_string()
    }

    #[test]
    fn changes_have_the_colour_of_their_severity() {
        let page = compared(Some(&Ok(&difference(&["wider", "changed", "narrower", "note"]))));
        let places = [
            "<span class=\"bad\">it may do more, or its signer",
            "<span class=\"bad\">wider</span>",
            "<span class=\"doubtful\">changed</span>",
            "<span class=\"good\">narrower</span>",
            "<span class=\"good\">note</span>",
        ]
        .map(|shown| page.find(shown));
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{places:?}: {page}");
        assert!(page.contains(">-</td><td class=\"wide\"><code>a.example:443</code></td>"), "{page}");
    }

    #[test]
    fn a_difference_says_that_it_is_no_wider() {
        let narrower = compared(Some(&Ok(&difference(&["narrower"]))));
        assert!(narrower.contains("<span class=\"good\">it may do no more</span>"), "{narrower}");
        let none = compared(Some(&Ok(&difference(&[]))));
        assert!(none.contains("There is no difference.") && !none.contains("<table"), "{none}");
    }

    #[test]
    fn other_versions_are_linked_also_beside_an_error() {
        let links = compared(None);
        let path = "/console/connectors/github/acme/slack@1.1.0?from=";
        for version in ["2.0.0-rc.1", "1.0.0"] {
            assert!(links.contains(&format!("<a href=\"{path}{version}\">From {version}</a>")), "{links}");
        }
        let shown = compared(Some(&Ok(&difference(&[]))));
        assert!(shown.contains(&format!("<a href=\"{path}1.0.0\" aria-current=\"true\">")), "{shown}");
        let error = HostError::new(HostErrorKind::ConnectorNotFound, "It is not installed.");
        let message = error_message(&error.with_hint("Other installed versions: 1.0.0.").into());
        let failed = compared(Some(&Err(message)));
        for text in
            ["From 1.0.0", "It is not installed", "Other installed versions: 1.0.0.", "connector_not_found"]
        {
            assert!(failed.contains(text), "{text}: {failed}");
        }
        assert!(!failed.contains("aria-current"), "{failed}");
    }
}
