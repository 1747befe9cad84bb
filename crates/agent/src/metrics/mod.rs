//! Metrics: the ledgers of windows as counters by service, and the agent's own figures.
//!
//! Counters are sums of nanoseconds, written as seconds with nine decimals, so a counter equals the
//! ledgers of the windows to the nanosecond. A service is a label of the threads' ([`crate::services`]),
//! so the number of series has the budget of services.

mod exposition;
mod families;
mod family;
mod protobuf;
mod totals;

pub use exposition::Exposition;
pub use families::{AgentFigures, TargetFigures, families};
pub use family::{Family, Lengths, MetricKind, Sample, Value};
pub(crate) use totals::on_cpu_fraction;
pub use totals::{ServiceTotals, Totals};
