//! A comparison for people and scripts: [`text`], [`json`], [`markdown`], [`junit`], the page
//! ([`write_page`]), and its stacks as folded lines and pprof. The comparison itself is
//! [`wallscope_analysis::diff`]'s.

mod folded;
mod json;
mod junit;
mod markdown;
mod page;
mod pprof;
mod text;

pub use folded::write as write_folded;
pub use json::render as json;
pub use junit::render as junit;
pub use markdown::render as markdown;
pub use page::write as write_page;
pub use pprof::write as write_pprof;
pub use text::{Shown, render as text};
