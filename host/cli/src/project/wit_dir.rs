//! The WIT directory for tools that read one: the author's package, a world for it, and the contract as its dependency.

use std::fs;
use std::path::PathBuf;

use cofferdam_core::error::HostError;
use cofferdam_model::package::WitOutline;

use super::tool::ToolDirectory;
use crate::{files, sdk_files};

/// The directory's name in the directory of tools.
const DIRECTORY: &str = "wit";

/// Writes the directory anew.
pub(super) fn write(tools: &ToolDirectory, outline: &WitOutline) -> Result<PathBuf, HostError> {
    let dir = tools.fresh(DIRECTORY)?;
    for path in super::wit_files(tools.project())? {
        let copy = dir.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &copy).map_err(|error| files::unreadable("The WIT file", &path, error))?;
    }
    let unwritable = |error| files::unwritable(&dir, error);
    if let Some(world) = outline.generated_world() {
        fs::write(dir.join("generated-world.wit"), world).map_err(unwritable)?;
    }
    sdk_files::write_contract(&dir).map_err(unwritable)?;
    Ok(dir)
}
