//! `latency --slow`: the stacks of slow calls compared with those of typical calls. Stacks are sampled beside the
//! probes. Each call is kept with its thread and its time, so every stack is known to belong to a slow
//! call, to a typical one, or to neither.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use wallscope_analysis::diff::{Normal, Options as DiffOptions, compare};
use wallscope_analysis::view::Idle;
use wallscope_capture::Error;
use wallscope_capture::backend::Backend;
use wallscope_capture::session::{
    self, Captured, Control, Live, Method, Observer, Options, Progress,
};
use wallscope_capture::target::Target;
use wallscope_capture::uprobes::Measured;
use wallscope_formats::pprof;
use wallscope_model::Recording;
use wallscope_model::call_filter::{Moment, outermost};
use wallscope_model::calls::Call;
use wallscope_model::scale::scale;
use wallscope_model::units::{count, ns};
use wallscope_render::diff::{self, Shown};

use crate::failure::Failure;
use crate::output::{Output, Readers, unwritable};
use crate::report::style;

/// Typical calls are those between these quantiles.
const TYPICAL: (f64, f64) = (0.25, 0.75);
/// Blocked or runnable time a stack: finer than a recording's, as calls are short.
const PERIOD: std::time::Duration = std::time::Duration::from_micros(200);
const HZ: u32 = 199;

/// `p99`, `p99.9`.
pub fn quantile(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix('p').unwrap_or(text).parse::<f64>();
    match number {
        Ok(p) if p > TYPICAL.1 * 100.0 && p < 100.0 => Ok(p / 100.0),
        _ => Err("a quantile above p75 and below p100 is needed, as in p99".into()),
    }
}

/// The output files, and the recording beside the probes once it is under way.
pub struct Slow {
    quantile: f64,
    page: (PathBuf, Output),
    slow: (PathBuf, Output),
    typical: (PathBuf, Output),
    recording: Option<Recorder>,
}

/// A recording under way.
struct Recorder {
    control: Control,
    thread: JoinHandle<Result<Captured, Error>>,
}

/// The recording beside the probes with its names, and the times of its samples.
fn recorded(
    thread: JoinHandle<Result<Captured, Error>>,
) -> Result<(Recording, Vec<Moment>), Failure> {
    let captured = match thread.join() {
        Ok(captured) => captured.map_err(|e| Failure::of(e.exit_code(), anyhow::Error::new(e)))?,
        Err(_) => return Err(anyhow::anyhow!("the recording beside the probes failed").into()),
    };
    let mut recording = captured.recording;
    let unnamed = wallscope_symbolize::resolve(&mut recording, captured.sources);
    recording.losses.extend(unnamed);
    Ok((recording, captured.moments))
}

/// Sends the recording's control to the caller once the recording is live.
struct Waiter(mpsc::Sender<Control>);

impl Observer for Waiter {
    fn live(&mut self, facts: &Live) {
        // On an error the receiver is gone, and no caller will stop the recording.
        let _ = self.0.send(facts.control.clone());
    }

    fn progress(&mut self, _: &Progress) {}
}

impl Slow {
    /// Opens the files.
    pub fn open(quantile: f64, page: Option<PathBuf>) -> Result<Slow, Failure> {
        let page = page.unwrap_or_else(|| {
            let mut path = crate::record::dated_name();
            path.set_extension("");
            path.with_extension("html")
        });
        let beside = |what: &str| {
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            page.with_file_name(format!("{stem}-{what}.pb.gz"))
        };
        let open = |path: PathBuf, readers| -> Result<(PathBuf, Output), Failure> {
            let output = Output::create(&path, readers)?;
            Ok((path, output))
        };
        Ok(Slow {
            quantile,
            slow: open(beside("slow"), Readers::Owner)?,
            typical: open(beside("typical"), Readers::Owner)?,
            page: open(page, Readers::Umask)?,
            recording: None,
        })
    }

    /// Starts to record; returns when it is live.
    pub fn record(&mut self, target: Target) -> Result<(), Error> {
        let method = Method {
            hz: HZ,
            off_cpu_period: PERIOD,
            backend: Some(Backend::Ebpf),
            ..Method::default()
        };
        let options = Options {
            moments: true,
            ..Options::new(target, method)
        };
        let (sender, live) = mpsc::channel();
        let thread = std::thread::spawn(move || session::record(&options, &mut Waiter(sender)));
        let Ok(control) = live.recv() else {
            return Err(match thread.join() {
                Ok(Err(e)) => e,
                _ => Error::Io {
                    what: "cannot record beside the probes".into(),
                    cause: std::io::Error::other("it ended before it was live"),
                },
            });
        };
        self.recording = Some(Recorder { control, thread });
        Ok(())
    }

    /// Ends the recording, divides it by the calls that were measured, and writes the parts.
    /// Returns the outcome in words.
    pub fn finish(mut self, measured: &Measured) -> Result<String, Failure> {
        let Some(Recorder { control, thread }) = self.recording.take() else {
            return Ok("Nothing was recorded beside the probes.\n".into());
        };
        control.stop();
        let (recording, moments) = recorded(thread)?;
        let functions = &measured.calls.functions;
        let most = (0..functions.len()).max_by_key(|i| functions[*i].wall);
        let divided = most.and_then(|i| {
            let lengths = &functions[i].lengths;
            let at = |q| lengths.quantile(q);
            Some((i, at(TYPICAL.0)?, at(TYPICAL.1)?, at(self.quantile)?))
        });
        let Some((index, low, high, slow_at)) = divided else {
            return Ok("No call ended, so there are no slow ones.\n".into());
        };
        let name = &functions[index].name;
        let calls: Vec<Call> = (measured.each.iter().copied())
            .filter(|c| c.function == index)
            .collect();
        let calls = outermost(calls);
        // The quantile is the middle of a part of the histogram.
        let slow_at = slow_at.min(calls.iter().map(|c| c.length).max().unwrap_or(0));
        let slow: Vec<&Call> = calls.iter().filter(|c| c.length >= slow_at).collect();
        let typical: Vec<&Call> = (calls.iter())
            .filter(|c| (low..=high).contains(&c.length) && c.length < slow_at)
            .collect();
        let part = |calls: &[&Call], which: &str| {
            let mut part = recording.restricted_to(&moments, calls);
            part.domain.notes.push(format!(
                "only what lies within {} {which} calls of {name}; ledgers are those of the calls",
                count(calls.len() as u64)
            ));
            part
        };
        let (slow_part, typical_part) = (part(&slow, "slow"), part(&typical, "typical"));
        let mut out = format!(
            "\nSlow calls of {name}: {} of {} and longer (p{}), against {} typical ones of {} to {}\n",
            count(slow.len() as u64),
            ns(slow_at),
            self.quantile * 100.0,
            count(typical.len() as u64),
            ns(low),
            ns(high),
        );
        write(&mut self.slow.1, &slow_part)?;
        write(&mut self.typical.1, &typical_part)?;
        self.slow.1.finish()?;
        self.typical.1.finish()?;
        let (slow_part, typical_part) = ([slow_part], [typical_part]);
        let options = DiffOptions {
            idle: Idle::Show,
            normal: Normal::Total,
            ..DiffOptions::default()
        };
        let comparison = compare(&typical_part, &slow_part, &options)
            .map_err(|e| anyhow::anyhow!("cannot compare slow calls with typical ones: {e}"))?;
        let shown = Shown {
            noise: 0,
            resolve: None,
        };
        out.push_str(&diff::text(&comparison, &[], shown, &style()));
        let title = format!("{name}: typical calls → slow calls");
        let sides: [&[Recording]; 2] = [&typical_part, &slow_part];
        diff::write_page(&comparison, sides, &title, &mut self.page.1)
            .with_context(|| unwritable(&self.page.0))?;
        self.page.1.finish()?;
        eprintln!(
            "wallscope: wrote {} (the flame graph of slow against typical calls), {} and {}",
            self.page.0.display(),
            self.slow.0.display(),
            self.typical.0.display()
        );
        Ok(out)
    }
}

fn write(to: &mut Output, recording: &Recording) -> anyhow::Result<()> {
    pprof::write(recording, &scale(recording), to).context("cannot write the calls' recording")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_above_typical_ones() {
        assert_eq!(quantile("p99"), Ok(0.99));
        assert!((quantile("p99.9").unwrap() - 0.999).abs() < 1e-12);
        for wrong in ["p50", "p100", "slow", "", "-1"] {
            assert!(quantile(wrong).is_err(), "{wrong}");
        }
    }
}
