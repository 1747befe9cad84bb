//! Drives the real `wallscope` binary the way a script would: starts `record`, waits for the line
//! on stderr that says it is live, stops it with SIGINT, and asks `report` and `export`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

pub use crate::options::{Options, Took};
use crate::program::{Owned, lines_of};
use crate::score::share::Evidence;
use crate::{Error, Program, Truth, folded, report};

/// The `wallscope` binary under test.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
    /// Arguments of each `record`.
    recording: Vec<String>,
    checked: Checked,
}

/// Checks of a recording beyond its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// None.
    Not,
    /// Its own log gives it again, byte for byte.
    ByReplay,
}

/// A finished recording, in a folder that goes when it is dropped.
#[derive(Debug)]
pub struct Recorded {
    tool: Tool,
    folder: tempfile::TempDir,
    /// Delays of the tool.
    pub took: Took,
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    child: Owned,
    output: Receiver<String>,
    lines: Receiver<String>,
    said: Vec<String>,
    recorded: Recorded,
}

/// A truth program, recorded from before its release to after its truth.
#[derive(Debug)]
pub struct Run {
    /// The program's own account.
    pub truth: Truth,
    /// Wallscope's report.
    pub report: report::Report,
    /// Every stack of the wall view, with thread and state.
    pub stacks: Vec<folded::Line>,
    /// The recording itself.
    pub recorded: Recorded,
}

const LIVE_LIMIT: Duration = Duration::from_secs(60);

/// Checks that the tool's standard error shows no panic.
///
/// # Panics
/// The tool panicked.
pub fn no_panic(said: &str) {
    assert!(!said.contains("panicked at"), "wallscope panicked: {said}");
}

impl Tool {
    /// Any binary at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Tool {
        Tool {
            path: path.into(),
            recording: Vec::new(),
            checked: Checked::Not,
        }
    }

    /// The binary, with a check after each recording that ends by itself or by SIGINT: its own log, replayed,
    /// gives the same file.
    pub fn replayed(self) -> Tool {
        Tool {
            checked: Checked::ByReplay,
            ..self
        }
    }

    /// The binary with `arguments` added to each `record`, so that an experiment measures in another way
    /// than its own.
    pub fn recording_with(&self, arguments: &[&str]) -> Tool {
        Tool {
            path: self.path.clone(),
            recording: arguments.iter().map(|a| a.to_string()).collect(),
            checked: self.checked,
        }
    }

    /// The binary named by `WALLSCOPE`, else the newer of `wallscope` in the release and debug
    /// folders beside the running test.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] without root, BTF, or the binary, with the remedy.
    pub fn find() -> Result<Tool, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::CannotRunHere("needs root".into()));
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Error::CannotRunHere("this kernel has no BTF".into()));
        }
        if let Some(path) = std::env::var_os("WALLSCOPE") {
            return Ok(Tool::at(path));
        }
        let own = std::env::current_exe().map_err(|e| Error::Start(format!("self: {e}")))?;
        let modified = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
        let path = own
            .ancestors()
            .skip(1)
            .take(4)
            .flat_map(|folder| {
                ["wallscope", "release/wallscope", "debug/wallscope"].map(|name| folder.join(name))
            })
            .filter(|path| path.is_file())
            .max_by_key(modified)
            .ok_or_else(|| {
                Error::CannotRunHere(
                    "the wallscope binary is not built; run: cargo build --release -p wallscope"
                        .into(),
                )
            })?;
        Ok(Tool::at(path))
    }

    /// Path of the binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it to its end with `arguments`.
    ///
    /// # Errors
    /// When it cannot be started; not when it fails.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Output, Error> {
        Command::new(&self.path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::Start(format!("{}: {error}", self.path.display())))
    }

    /// Starts `record -p PIDS` and returns when it is live.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] where it exits with 3; otherwise its standard error.
    pub fn attach(&self, pids: &[u32], options: &Options) -> Result<Recorder, Error> {
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.record(&["-p", &list.join(",")], options)
    }

    /// Starts `record` with the given target and returns when it is live.
    ///
    /// # Errors
    /// As [`Tool::attach`].
    pub fn record(&self, target: &[&str], options: &Options) -> Result<Recorder, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let began = Instant::now();
        let log = self.keeps_log(options).then(|| folder.path().join(LOG));
        let mut child = Command::new(&self.path)
            .arg("record")
            .args(["-F", &options.hz.to_string(), "-o"])
            .arg(folder.path().join(FILE))
            .args(
                log.iter()
                    .flat_map(|log| ["--keep-log".as_ref(), log.as_os_str()]),
            )
            .args(&self.recording)
            .args(&options.more)
            .args(target)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Start(format!("{}: {error}", self.path.display())))?;
        let lines = lines_of(child.stderr.take().expect("stderr is piped"));
        let output = lines_of(child.stdout.take().expect("stdout is piped"));
        let mut recorder = Recorder {
            child: Owned(child),
            output,
            lines,
            said: Vec::new(),
            recorded: Recorded {
                tool: self.clone(),
                folder,
                took: Took::default(),
            },
        };
        recorder.wait_until_live()?;
        recorder.recorded.took.to_live = began.elapsed();
        Ok(recorder)
    }

    /// Whether a recording with these options keeps its log.
    fn keeps_log(&self, options: &Options) -> bool {
        let all = || self.recording.iter().chain(&options.more);
        let asked = |of: &str| all().any(|argument| argument == of);
        self.checked == Checked::ByReplay && !asked("--keep-log") && !asked("--spool-limit")
    }

    /// Starts a truth program, records it whole, and reads the recording.
    ///
    /// # Errors
    /// The reason why the experiment cannot be made.
    pub fn measure(&self, name: &str, flags: &[&str], options: &Options) -> Result<Run, Error> {
        let mut program = Program::start(name, flags)?;
        let recorder = self.attach(program.pids(), options)?;
        program.release()?;
        let truth = program.truth(Duration::from_secs(120))?;
        let recorded = recorder.stop()?;
        program.finish()?;
        Run::read(truth, recorded)
    }
}

const FILE: &str = "recording.pb.gz";
const LOG: &str = "recording.log";

impl Run {
    /// The run as the scorer compares it.
    pub fn evidence(&self) -> Evidence<'_> {
        Evidence {
            report: &self.report,
            truth: &self.truth,
            lines: &self.stacks,
        }
    }

    /// Reads a finished recording beside its truth.
    ///
    /// # Errors
    /// When `report` or `export` fail or say something else than the contract has.
    pub fn read(truth: Truth, recorded: Recorded) -> Result<Run, Error> {
        Ok(Run {
            truth,
            report: recorded.report()?,
            stacks: recorded.folded("wall")?,
            recorded,
        })
    }
}

impl Recorder {
    /// The recorder's own process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    fn wait_until_live(&mut self) -> Result<(), Error> {
        loop {
            match self.lines.recv_timeout(LIVE_LIMIT) {
                Ok(line) => {
                    let live = line.contains("recording");
                    self.said.push(line);
                    if live {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::Output(format!(
                        "record was not live after {} s; it said: {}",
                        LIVE_LIMIT.as_secs(),
                        self.said.join(" / ")
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.0.wait().ok().and_then(|status| status.code());
                    let said = self.said.join(" / ");
                    no_panic(&said);
                    return Err(match status {
                        Some(3) => Error::CannotRunHere(said),
                        _ => Error::Output(format!(
                            "record ended (status {status:?}) before it was live: {said}"
                        )),
                    });
                }
            }
        }
    }

    /// The next line on its standard output, which is also that of a command it started.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub fn output_line(&self, limit: Duration) -> Result<String, Error> {
        self.output
            .recv_timeout(limit)
            .map_err(|_| Error::Output("record and its command printed no further line".into()))
    }

    /// Stops it with SIGINT and waits for the file.
    ///
    /// # Errors
    /// When it exits with anything but 0.
    pub fn stop(mut self) -> Result<Recorded, Error> {
        let began = Instant::now();
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.0.id() as i32) {
            // It may have ended by itself, which its status will tell.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        self.wait_for_end(0)?;
        self.recorded.took.to_file = began.elapsed();
        self.recorded.check_replay()?;
        Ok(self.recorded)
    }

    /// Ends it with SIGKILL. What is left of its recording is in the folder.
    ///
    /// # Errors
    /// It ended by itself before.
    pub fn kill(mut self) -> Result<Recorded, Error> {
        let wait = |e: std::io::Error| Error::Start(format!("wait: {e}"));
        self.child.0.kill().map_err(wait)?;
        let status = self.child.0.wait().map_err(wait)?;
        match status.signal() {
            Some(9) => Ok(self.recorded),
            _ => Err(Error::Output(format!("record: {status}, expected SIGKILL"))),
        }
    }

    /// Waits until it ends by itself, with `status`.
    ///
    /// # Errors
    /// When it exits with anything else.
    pub fn ends_with(mut self, status: i32) -> Result<Recorded, Error> {
        self.wait_for_end(status)?;
        if status == 0 {
            self.recorded.check_replay()?;
        }
        Ok(self.recorded)
    }

    fn wait_for_end(&mut self, expected: i32) -> Result<(), Error> {
        let status = self
            .child
            .0
            .wait()
            .map_err(|e| Error::Start(format!("wait: {e}")))?;
        self.said.extend(self.lines.iter());
        if status.code() == Some(expected) {
            return Ok(());
        }
        let said = self.said.join(" / ");
        no_panic(&said);
        Err(Error::Output(format!(
            "record: {status}, expected {expected}; it said: {said}"
        )))
    }
}

impl Recorded {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(FILE)
    }

    /// The log that was kept for the check of its replay.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join(LOG)
    }

    /// The spool beside it.
    pub fn spool(&self) -> PathBuf {
        self.folder.path().join(format!("{FILE}.spool"))
    }

    /// Replays the log, if one was kept, and compares the recordings.
    fn check_replay(&self) -> Result<(), Error> {
        let log = self.log();
        if !log.exists() {
            return Ok(());
        }
        let again = self.folder.path().join("replayed.pb.gz");
        let verb = [
            "replay".as_ref(),
            log.as_os_str(),
            "-o".as_ref(),
            again.as_os_str(),
        ];
        let output = self.tool.run(&verb)?;
        let said = String::from_utf8_lossy(&output.stderr);
        no_panic(&said);
        if !output.status.success() {
            return Err(Error::Output(format!("replay: {}: {said}", output.status)));
        }
        let read = |path: &Path| std::fs::read(path).map_err(|e| Error::Output(e.to_string()));
        let (live, replayed) = (read(&self.path())?, read(&again)?);
        match live == replayed {
            true => Ok(()),
            false => Err(Error::Output(format!(
                "the recording has {} bytes live and {} replayed, and they differ",
                live.len(),
                replayed.len()
            ))),
        }
    }

    /// Has the spool made into the recording; returns the text of standard error.
    ///
    /// # Errors
    /// It cannot be.
    pub fn recover(&self) -> Result<String, Error> {
        let (spool, output) = (self.spool(), self.path());
        let all = [
            "recover".as_ref(),
            spool.as_os_str(),
            "-o".as_ref(),
            output.as_os_str(),
        ];
        let output = self.tool.run(&all)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        no_panic(&said);
        match output.status.success() {
            true => Ok(said),
            false => Err(Error::Output(format!("recover: {}: {said}", output.status))),
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, Error> {
        let (verb, rest) = arguments.split_first().expect("a verb is given");
        let path = self.path();
        let mut all = vec![verb.as_ref(), path.as_os_str()];
        all.extend(rest.iter().map(std::ffi::OsStr::new));
        let output = self.tool.run(&all)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            no_panic(&said);
            return Err(Error::Output(format!(
                "{verb}: {}: {}",
                output.status,
                said.trim()
            )));
        }
        String::from_utf8(output.stdout).map_err(|e| Error::Output(format!("{verb}: {e}")))
    }

    /// `report --json`.
    ///
    /// # Errors
    /// When it fails or differs from the contract.
    pub fn report(&self) -> Result<report::Report, Error> {
        let text = self.ask(&["report", "--json"])?;
        let report: report::Report = serde_json::from_str(&text)
            .map_err(|error| Error::Output(format!("report --json: {error}")))?;
        if report.schema != "wallscope.report/1" {
            return Err(Error::Output(format!("schema {:?}", report.schema)));
        }
        Ok(report)
    }

    /// Output of a verb with `--json`.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn json(&self, arguments: &[&str]) -> Result<serde_json::Value, Error> {
        let text = self.ask(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|e| Error::Output(format!("{arguments:?} --json: {e}")))
    }

    /// `export --format folded --view VIEW --with thread,state`.
    ///
    /// # Errors
    /// When it fails or differs from the contract.
    pub fn folded(&self, view: &str) -> Result<Vec<folded::Line>, Error> {
        self.folded_where(view, &[])
    }

    /// [`Recorded::folded`] with further arguments.
    ///
    /// # Errors
    /// When it fails or differs from the contract.
    pub fn folded_where(&self, view: &str, more: &[&str]) -> Result<Vec<folded::Line>, Error> {
        let arguments = [
            "export",
            "--format",
            "folded",
            "--view",
            view,
            "--with",
            "thread,state",
        ];
        folded::parse(&self.ask(&[&arguments, more].concat())?)
    }
}
