//! `mcp --list-tools` and `mcp --pin`: what agents would read, for the operator to read first.

use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_runtime::host::Host;
use cofferdam_server::mcp::{GivenNames, ToolCatalog, ToolFilter, ToolListing, ToolPins};

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::runtime;
use crate::ui::Ui;

/// Shows the tools.
pub(super) fn list(
    host: &Host,
    offer: &ToolFilter,
    pins: Result<ToolPins, (HostError, ToolPins)>,
    names: &GivenNames,
    ui: &Ui,
) -> Result<(), CommandError> {
    let (pins, unusable) = match pins {
        Ok(pins) => (pins, None),
        Err((error, none)) => (none, Some(error)),
    };
    let pins = &pins;
    let listing = read(host, offer, pins, names)?.listing();
    ui.result(&listing, |it| page(&listing, it))?;
    if let Some(error) = unusable {
        let message = error.message().trim_end_matches('.');
        ui.warn(&format!(
            "{message}. These are the tools without their pins; no server starts before that is repaired. {}",
            error.hint().unwrap_or_default()
        ));
    } else if listing.tools.is_empty() {
        ui.note(nothing(&listing));
    } else if let Some(count) = pins.count() {
        ui.note(&format!("{count} tools are pinned; --pin pins those that are asked for now."));
    }
    Ok(())
}

/// Why there is nothing to offer.
pub(super) fn nothing(listing: &ToolListing) -> &'static str {
    match listing.withheld.is_empty() {
        true => "No tool is offered: name operations with --operations, or add an action.",
        false => {
            "No tool is offered: `cofferdam mcp --list-tools` with the same options says what is left out and why."
        }
    }
}

/// Pins the tools, whatever was pinned before.
pub(super) fn pin(
    host: &Host,
    offer: &ToolFilter,
    pins: ToolPins,
    names: GivenNames,
    ui: &Ui,
) -> Result<(), CommandError> {
    let all = read(host, offer, &pins.without_pins(), &names)?;
    let before = read(host, offer, &pins, &names)?;
    all.pin(&pins, names)?;
    let listing = all.listing();
    ui.result(&listing, |page| {
        for tool in &listing.tools {
            let known = before.listing().tools.iter().any(|one| one.name == tool.name);
            let was = if known && pins.count().is_some() { "as it was" } else { "pinned" };
            page.line(&format!("{}: {}, {was}", tool.name, tool.runs));
        }
    })?;
    ui.note(&format!("{} tools are pinned.", listing.tools.len()));
    Ok(())
}

fn read(
    host: &Host,
    offer: &ToolFilter,
    pins: &ToolPins,
    names: &GivenNames,
) -> Result<ToolCatalog, CommandError> {
    let offer = Arc::new(offer.clone());
    runtime::block_on_with(host, async { Ok(ToolCatalog::read(host, &offer, pins, names).await?) })
}

fn page(listing: &ToolListing, page: &mut Page) {
    if !listing.tools.is_empty() {
        let row = |tool: &cofferdam_server::mcp::ListedTool| [tool.name.clone(), tool.runs.clone()];
        page.table(["TOOL", "RUNS"], listing.tools.iter().map(row).collect());
    }
    if !listing.withheld.is_empty() {
        page.heading("Not offered");
        for one in &listing.withheld {
            page.styled(TextStyle::Doubtful, &format!("{}: {}", one.name, one.why));
        }
    }
}
