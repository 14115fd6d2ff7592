//! The page about the network: connectors, operations and hosts as a map, and as a table.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_server::http_api::{NetworkReport, NetworkRoute, UnusedHost};
use maud::{Markup, html};

use crate::chart::scale;
use crate::format::{encoded, number, percent, plain};
use crate::frame::{Area, Page, table};
use crate::router::CONSOLE;

/// The most routes that are drawn, and that are listed: those with the most requests.
const DRAWN: usize = 40;
const LISTED: usize = 500;

/// The places of the three columns of the map, and its width.
const COLUMNS: [u64; 3] = [0, 420, 720];
const WIDTH: u64 = 1_000;
/// The width of the boxes, and the distance between those of a column.
const BOX: u64 = 240;
const ROW: u64 = 44;

/// The most characters of a name in the map; the table has all of it.
const NAME_CHARS: usize = 32;

/// The widest line.
const WIDEST: u64 = 12;

/// The parameters of the page: those of the HTTP API.
pub(crate) type NetworkQuery = BTreeMap<String, String>;

/// The page about the network.
pub(crate) fn show(query: &NetworkQuery, network: &NetworkReport) -> Page {
    let body = html! {
        (filter(query))
        div #present { (requests(network)) }
    };
    Page::new(Area::Network, "Network", body)
}

/// Returns the requests as a map and as tables.
pub(crate) fn requests(network: &NetworkReport) -> Markup {
    let routes = network.routes.as_slice();
    html! {
        @if routes.is_empty() { p { "No request is on record that fits." } }
        @if !routes.is_empty() || !network.unused.is_empty() {
            (map(routes, &network.unused))
        }
        @if !routes.is_empty() { (list(routes)) }
        @if routes.iter().any(|route| route.repeated_writes > 0) {
            h2 { "Repeated writes" }
            (repeated(routes))
        }
        h2 { "Granted and never used" }
        (unused(&network.unused))
        @if !network.unreadable.is_empty() {
            p.bad { "The grants of these cannot be read: " (plain(&network.unreadable.join(", "))) "." }
        }
    }
}

fn filter(query: &NetworkQuery) -> Markup {
    let field = |name: &str, title: &str, example: &str| {
        let given = query.get(name).map(String::as_str).unwrap_or_default();
        html! {
            label {
                (title)
                input name=(name) value=(plain(given)) placeholder=(example) autocomplete="off";
            }
        }
    };
    html! {
        form.filter method="get" action=(format!("{CONSOLE}/network")) aria-label="Filter" {
            (field("connector", "Connector", "github://acme/slack"))
            (field("since", "Since", "2026-11-22T00:00:00Z"))
            (field("until", "Until", "2026-11-23T00:00:00Z"))
            button { "Filter" }
            a href=(format!("{CONSOLE}/network")) { "Everything" }
        }
    }
}

/// Returns the requests without an acceptable response.
fn failed(route: &NetworkRoute) -> u64 {
    [route.client_errors, route.server_errors, route.unanswered, route.refused]
        .into_iter()
        .fold(0, u64::saturating_add)
}

/// Returns the class of a line: the colour of its status.
fn status(requests: u64, failed: u64) -> &'static str {
    match failed {
        0 => "fine",
        // Half of them.
        failed if failed >= requests.div_ceil(2) => "failing",
        _ => "mixed",
    }
}

/// A line of the map, from a box to one of the next columns.
struct MapLine {
    from: (usize, usize),
    to: (usize, usize),
    requests: u64,
    failed: u64,
}

/// The map: the names in each column, and the lines between them.
#[derive(Default)]
struct NetworkMap<'r> {
    columns: [Vec<&'r str>; 3],
    /// The operations, each with its connector.
    ops: Vec<(&'r str, &'r str)>,
    lines: Vec<MapLine>,
    /// The lines of what is granted and was never used.
    unused: Vec<((usize, usize), (usize, usize))>,
}

impl<'r> NetworkMap<'r> {
    fn new(routes: &'r [NetworkRoute], unused: &'r [UnusedHost]) -> Self {
        let mut own = Self::default();
        let mut by_op = BTreeMap::<(usize, usize), (u64, u64)>::new();
        for route in routes {
            let connector = own.position(0, &route.connector);
            let op = own.op(&route.connector, &route.op);
            let host = own.position(2, &route.host);
            let (requests, failed) = by_op.entry((connector, op)).or_default();
            *requests = requests.saturating_add(route.requests);
            *failed = failed.saturating_add(self::failed(route));
            own.lines.push(MapLine {
                from: (1, op),
                to: (2, host),
                requests: route.requests,
                failed: self::failed(route),
            });
        }
        own.lines.extend(by_op.into_iter().map(|((connector, op), (requests, failed))| MapLine {
            from: (0, connector),
            to: (1, op),
            requests,
            failed,
        }));
        for host in unused {
            let from = (0, own.position(0, &host.connector));
            let to = (2, own.position(2, host.host_port()));
            own.unused.push((from, to));
        }
        own
    }

    /// Returns the position of a name in a column, where it is added if it is new.
    fn position(&mut self, column: usize, name: &'r str) -> usize {
        let Some(names) = self.columns.get_mut(column) else { return 0 };
        let known = names.iter().position(|own| *own == name);
        known.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    }

    fn op(&mut self, connector: &'r str, op: &'r str) -> usize {
        let known = self.ops.iter().position(|own| *own == (connector, op));
        known.unwrap_or_else(|| {
            self.ops.push((connector, op));
            let [_, names, _] = &mut self.columns;
            names.push(if op.is_empty() { "(fallback)" } else { op });
            self.ops.len() - 1
        })
    }

    fn height(&self) -> u64 {
        let rows = self.columns.iter().map(Vec::len).max().unwrap_or(0);
        (rows as u64).saturating_mul(ROW)
    }

    /// Returns the place of a box: its left edge and its middle. The boxes of a column are spread over the height.
    fn place(&self, (column, row): (usize, usize)) -> (u64, u64) {
        let rows = self.columns.get(column).map_or(1, Vec::len).max(1) as u64;
        let middle = scale(2 * row as u64 + 1, 2 * rows, self.height());
        (COLUMNS.get(column).copied().unwrap_or(0), middle)
    }

    /// Returns the curve from the right edge of a box to the left edge of another.
    fn curve(&self, from: (usize, usize), to: (usize, usize)) -> String {
        let ((left, top), (right, bottom)) = (self.place(from), self.place(to));
        let left = left + BOX;
        let half = left.midpoint(right);
        format!("M{left},{top} C{half},{top} {half},{bottom} {right},{bottom}")
    }
}

/// Returns a name that fits into its box, with its end, which differs more often than its beginning.
pub(crate) fn short(name: &str) -> String {
    let name = plain(name);
    let name = name.split_once("://").map_or(name.as_str(), |(_, rest)| rest);
    let chars = name.chars().count();
    if chars <= NAME_CHARS {
        return name.to_owned();
    }
    let end: String = name.chars().skip(chars - NAME_CHARS + 3).collect();
    format!("...{end}")
}

fn map(routes: &[NetworkRoute], unused: &[UnusedHost]) -> Markup {
    let drawn = routes.get(..DRAWN).unwrap_or(routes);
    let unused = unused.get(..DRAWN).unwrap_or(unused);
    let map = NetworkMap::new(drawn, unused);
    let most = map.lines.iter().map(|line| line.requests).max().unwrap_or(0);
    let text = format!(
        "{} connectors, {} operations and {} hosts, with lines as wide as their number of requests. The tables below have \
         the numbers.",
        map.columns.first().map_or(0, Vec::len),
        map.ops.len(),
        map.columns.last().map_or(0, Vec::len)
    );
    html! {
        figure {
            figcaption {
                "Connectors, operations and hosts, by requests"
                @if routes.len() > drawn.len() { "; the " (drawn.len()) " routes with the most of " (routes.len()) }
            }
            div.scroll role="region" aria-label="Map of the network" tabindex="0" {
                svg.map role="img" aria-label=(text) viewBox=(format!("0 0 {WIDTH} {}", map.height())) {
                    title { (text) }
                    @for (from, to) in &map.unused { path.unused d=(map.curve(*from, *to)) {} }
                    @for line in &map.lines {
                        path class=(status(line.requests, line.failed)) d=(map.curve(line.from, line.to))
                            stroke-width=(scale(line.requests, most, WIDEST).max(1)) {}
                    }
                    @for (column, names) in map.columns.iter().enumerate() {
                        @for (row, name) in names.iter().enumerate() {
                            @let (left, middle) = map.place((column, row));
                            rect.node x=(left) y=(middle.saturating_sub(16)) width=(BOX) height="32" rx="4" {}
                            text x=(left + 8) y=(middle + 5) { (short(name)) }
                        }
                    }
                }
            }
            ul.legend {
                @for (class, name) in [
                    ("fine", "all with a status below 400"),
                    ("mixed", "some without"),
                    ("failing", "half of them or more without"),
                    ("unused", "granted, never used"),
                ] {
                    li {
                        svg.swatch.line viewBox="0 0 24 10" aria-hidden="true" { path class=(class) d="M0,5 L24,5" stroke-width="4" {} }
                        (name)
                    }
                }
            }
        }
    }
}

fn operation(op: &str) -> String {
    if op.is_empty() { "(as a fallback)".to_owned() } else { plain(op) }
}

fn calls_path(route: &NetworkRoute) -> String {
    let op = if route.op.is_empty() { String::new() } else { format!("&op={}", encoded(&route.op)) };
    format!("{CONSOLE}/calls?connector={}{op}", encoded(&route.connector))
}

fn list(routes: &[NetworkRoute]) -> Markup {
    let listed = routes.get(..LISTED).unwrap_or(routes);
    let rows = html! {
        @for route in listed {
            tr {
                th.wide scope="row" { a href=(calls_path(route)) { (plain(&route.connector)) } }
                td { (operation(&route.op)) }
                td { (plain(&route.host)) }
                td.number { (number(route.requests)) }
                td.number { (number(route.answered)) }
                td.number { (number(route.client_errors)) }
                td.number { (number(route.server_errors)) }
                td.number { (number(route.unanswered)) }
                td.number { (number(route.refused)) }
                td.number {
                    span.bad[status(route.requests, failed(route)) == "failing"] { (percent(failed(route), route.requests)) }
                }
                td.number { (number(route.writes)) }
            }
        }
    };
    let header = [
        "Connector",
        "Operation",
        "Host",
        "Requests",
        "Below 400",
        "4xx",
        "5xx",
        "Unanswered",
        "Refused",
        "Failed",
        "Writes",
    ];
    html! {
        (table("Requests by connector, operation and host", &header, &rows))
        @if routes.len() > listed.len() { p { "These are the " (listed.len()) " with the most requests of " (routes.len()) "." } }
    }
}

/// Returns the writes of attempts after the first: without a key, a service may have done them twice.
fn repeated(routes: &[NetworkRoute]) -> Markup {
    let rows = html! {
        @for route in routes.iter().filter(|route| route.repeated_writes > 0).take(LISTED) {
            @let unkeyed = route.repeated_writes.saturating_sub(route.keyed_repeated_writes);
            tr {
                th.wide scope="row" { (plain(&route.connector)) }
                td { (operation(&route.op)) }
                td { (plain(&route.host)) }
                td.number { (number(route.repeated_writes)) }
                td.number { (number(route.keyed_repeated_writes)) }
                td.number { span.doubtful[unkeyed > 0] { (number(unkeyed)) } }
            }
        }
    };
    let header =
        ["Connector", "Operation", "Host", "Repeated writes", "With the call's key", "Without a key"];
    html! {
        p { "Writes that the host sent again within a call, after an attempt that failed." }
        (table("Repeated writes, and whether they carried a key", &header, &rows))
    }
}

fn unused(unused: &[UnusedHost]) -> Markup {
    let connectors: BTreeSet<_> = unused.iter().map(|host| host.connector.as_str()).collect();
    html! {
        @if unused.is_empty() { p { "Every host that a connector may reach was reached in this time." } }
        @else {
            ul {
                @for connector in connectors {
                    li {
                        (plain(connector)) ": "
                        @for (at, host) in unused.iter().filter(|host| host.connector == connector).enumerate() {
                            @if at > 0 { ", " }
                            code { (plain(&host.host)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(op: &str, host: &str, requests: u64, server_errors: u64) -> NetworkRoute {
        NetworkRoute {
            connector: "github://acme/slack@1.0.0".to_owned(),
            op: op.to_owned(),
            host: host.to_owned(),
            requests,
            answered: requests - server_errors,
            server_errors,
            ..NetworkRoute::default()
        }
    }

    #[test]
    fn lines_are_as_wide_as_their_requests() {
        let routes =
            [route("post", "a:443", 90, 0), route("post", "b:443", 30, 15), route("list", "a:443", 1, 0)];
        let unused = [UnusedHost {
            connector: "github://acme/slack@1.0.0".to_owned(),
            host: "http://c:80".to_owned(),
        }];
        let map = map(&routes, &unused).into_string();
        for line in [
            "class=\"fine\" d=\"M660,33 C690,33 690,22 720,22\" stroke-width=\"9\"",
            "class=\"failing\" d=\"M660,33 C690,33 690,66 720,66\" stroke-width=\"3\"",
            "class=\"fine\" d=\"M660,99 C690,99 690,22 720,22\" stroke-width=\"1\"",
            "class=\"mixed\" d=\"M240,66 C330,66 330,33 420,33\" stroke-width=\"12\"",
            "class=\"unused\" d=\"M240,66 C480,66 480,110 720,110\"",
            ">acme/slack@1.0.0</text>",
            ">c:80</text>",
        ] {
            assert!(map.contains(line), "{line}: {map}");
        }
        assert_eq!(map.matches("class=\"node\"").count(), 6, "{map}");
    }

    #[test]
    fn names_are_cut_to_their_boxes() {
        assert_eq!(short("github://acme/slack@1.0.0"), "acme/slack@1.0.0");
        let long = short(&"x".repeat(100));
        assert_eq!((long.chars().count(), long.starts_with("...")), (NAME_CHARS, true));
    }

    #[test]
    fn half_of_the_requests_make_a_line_failing() {
        assert_eq!(
            [(9, 0), (9, 4), (9, 5), (2, 1), (1, 1)].map(|(all, failed)| status(all, failed)),
            ["fine", "mixed", "failing", "failing", "failing"]
        );
    }
}
