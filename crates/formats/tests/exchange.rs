//! Files of other tools: the values read agree with those of their tools, and things that they do
//! not say stays unknown.

#[path = "exchange/agreement.rs"]
mod agreement;
#[path = "exchange/big_endian.rs"]
mod big_endian;
#[path = "exchange/complaints.rs"]
mod complaints;
#[path = "exchange/folded.rs"]
mod folded;
#[path = "exchange/generated/mod.rs"]
mod generated;
#[path = "exchange/hostile.rs"]
mod hostile;
#[path = "exchange/instruments.rs"]
mod instruments;
#[path = "exchange/jfr.rs"]
mod jfr;
#[path = "exchange/jfr_writer.rs"]
mod jfr_writer;
#[path = "exchange/other_pprof.rs"]
mod other_pprof;
#[path = "exchange/perf_data.rs"]
mod perf_data;
#[path = "exchange/perf_generated.rs"]
mod perf_generated;
#[path = "exchange/perf_script.rs"]
mod perf_script;
#[path = "exchange/perf_writer.rs"]
mod perf_writer;
#[path = "exchange/recorders.rs"]
mod recorders;
#[path = "exchange/support.rs"]
mod support;
#[path = "exchange/writers.rs"]
mod writers;
