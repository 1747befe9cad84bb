//! The spool of `wallscope record`: its place beside the output, and its end.

use wallscope_capture::session::Log;
use wallscope_observe::Spool;

use crate::output::{Output, UNASKED, caller};

/// The spool for a recording that goes to `output`, within `bound` bytes; `None`: there is none. Names
/// the spools of earlier recordings on standard error: those of this output, or, for an output with a
/// default name, those of all such outputs.
pub fn beside(output: &Output, bound: u64) -> Option<Spool> {
    if !output.is_file() {
        return None;
    }
    let name = output.path().file_name().unwrap_or_default();
    let prefix = match output.yields() {
        true => UNASKED.into(),
        false => format!("{}.", name.to_string_lossy()),
    };
    for (path, bytes) in Spool::left_behind(output.folder(), &prefix) {
        eprintln!(
            "wallscope: {0} is the spool of a recording that ended early ({1} KiB); it stays as it is: \
             `wallscope recover {0} -o FILE` makes the recording, `rm {0}` gives it up",
            path.display(),
            bytes.div_ceil(1024)
        );
    }
    if bound == 0 {
        return None;
    }
    let spool = Spool::beside(output.path(), bound);
    Some(match caller() {
        Some((user, group)) => spool.owned_by(user, group),
        None => spool,
    })
}

/// Why a recording that goes to `output` had no spool, for the domain; `None`: it had one, or none was
/// wanted.
pub fn none(log: Option<&Log>, output: &Output) -> Option<String> {
    match log {
        // The recorder has said why it could not make one.
        Some(Log::Kept(_) | Log::Spool(_)) => None,
        None if output.is_file() => None,
        None => Some(
            "no spool: the output is no file that it could lie beside; had the recorder been killed, nothing \
             of the recording would be left"
                .into(),
        ),
    }
}
