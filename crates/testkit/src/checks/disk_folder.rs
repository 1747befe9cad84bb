//! A folder on a disk.

use crate::Tool;

/// A folder on a real disk: the one the binary was built in.
pub fn disk_folder(tool: &Tool) -> String {
    let folder = tool.path().parent().unwrap_or(tool.path());
    folder.display().to_string()
}
