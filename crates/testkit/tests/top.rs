//! `wallscope top` in a real terminal of tmux: the tests type keys and read the screen.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use wallscope_testkit::{Error, Program, with_tool};

/// How long the screen may take to show something; machines that test are slow at times.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal of its own server, which ends with it.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn tmux(folder: &Path, arguments: &[&str]) -> Result<Output, Error> {
        Command::new("tmux")
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .args(["-f", "/dev/null", "-u", "-S"])
            .arg(folder.join("socket"))
            .args(arguments)
            .output()
            .map_err(|e| Error::CannotRunHere(format!("tmux cannot be started: {e}")))
    }

    /// Runs `command` by a shell, and keeps its status in a file.
    fn start(command: &str) -> Result<Terminal, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::Start(e.to_string()))?;
        let status = folder.path().join("status");
        let script = format!("{command}; echo $? > {}; sleep 600", status.display());
        let out = Terminal::tmux(
            folder.path(),
            &[
                "new-session",
                "-d",
                "-x",
                "120",
                "-y",
                "30",
                "sh",
                "-c",
                &script,
            ],
        )?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(Error::CannotRunHere(format!("tmux: {said}")));
        }
        Ok(Terminal { folder })
    }

    fn screen(&self) -> Result<String, Error> {
        let out = Terminal::tmux(self.folder.path(), &["capture-pane", "-p"])?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Waits until the screen is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String, Error> {
        let begin = Instant::now();
        loop {
            let screen = self.screen()?;
            if wanted(&screen) {
                return Ok(screen);
            }
            if self.status().is_some_and(|s| s == 3) {
                return Err(Error::CannotRunHere(screen));
            }
            if begin.elapsed() > PATIENCE {
                return Err(Error::Output(format!(
                    "the screen never showed {what}:\n{screen}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&self, key: &str) -> Result<(), Error> {
        Terminal::tmux(self.folder.path(), &["send-keys", key]).map(drop)
    }

    /// The command's exit status, once it has ended.
    fn status(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.folder.path().join("status")).ok()?;
        text.trim().parse().ok()
    }

    fn ends(&self) -> Result<i32, Error> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.status() {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::Output(format!(
            "it does not end:\n{}",
            self.screen()?
        )))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server is ours alone: it goes by its socket.
        let _ = Terminal::tmux(self.folder.path(), &["kill-server"]);
    }
}

#[test]
fn keys_lead_from_threads_to_stacks() {
    with_tool("top", |tool| {
        let mut program = Program::start("convoy", &["--seconds", "600"])?;
        let pid = program.pids()[0];
        program.release()?;
        let command = format!("{} top -p {pid} -I 500ms", tool.path().display());
        let t = Terminal::start(&command)?;
        let screen = t.until("threads", |s| s.contains("tid") && s.contains("lock "))?;
        if !screen.contains("blocked") || !screen.contains("own CPU") {
            t.until("all of its head", |s| {
                s.contains("blocked") && s.contains("own CPU")
            })?;
        }
        t.press("f")?;
        t.until("functions", |s| {
            s.contains("function") && s.contains("convoy_")
        })?;
        t.press("/")?;
        for letter in ["w", "a", "i", "t"] {
            t.press(letter)?;
        }
        t.press("Enter")?;
        t.until("only what was asked for", |s| {
            s.contains("filter: wait") && s.contains("convoy_wait") && !s.contains("convoy_hold")
        })?;
        t.press("Enter")?;
        t.until("stacks", |s| {
            s.contains("stacks of convoy_wait") && s.contains("blocked (lock)")
        })?;
        t.press("Escape")?;
        t.press("Space")?;
        let paused = t.until("that it is paused", |s| s.contains("PAUSED"))?;
        let body = |s: &str| s.lines().skip(1).map(str::to_string).collect::<Vec<_>>();
        std::thread::sleep(Duration::from_millis(1200));
        let later = t.screen()?;
        if body(&paused) != body(&later) {
            return Err(Error::Output(format!(
                "paused, yet it moves:\n{paused}\n{later}"
            )));
        }
        t.press("?")?;
        t.until("the keys", |s| s.contains("Any key goes back"))?;
        t.press("x")?;
        t.press("q")?;
        match t.ends()? {
            0 => {}
            status => return Err(Error::Output(format!("it ends with {status}"))),
        }
        let left = t.screen()?;
        if left.contains("own CPU") {
            return Err(Error::Output(format!(
                "the screen is not given back:\n{left}"
            )));
        }
        Ok(())
    });
}

#[test]
fn its_target_may_end_and_a_signal_ends_it() {
    with_tool("top ends", |tool| {
        let mut program = Program::start("mix", &["--seconds", "600"])?;
        program.release()?;
        let command = format!(
            "{} top -p {} -I 300ms",
            tool.path().display(),
            program.pids()[0]
        );
        let t = Terminal::start(&command)?;
        t.until("threads", |s| s.contains("threads in") && s.contains("tid"))?;
        // Killed where it stands.
        drop(program);
        t.until("that it has ended", |s| s.contains("ENDED"))?;
        t.press("q")?;
        match t.ends()? {
            0 => {}
            status => return Err(Error::Output(format!("it ends with {status}"))),
        }
        let mut program = Program::start("mix", &["--seconds", "600"])?;
        program.release()?;
        let folder = tempfile::tempdir().map_err(|e| Error::Start(e.to_string()))?;
        let own = folder.path().join("pid");
        let command = format!(
            "sh -c 'echo $$ > {}; exec {} top -p {} -I 300ms'",
            own.display(),
            tool.path().display(),
            program.pids()[0]
        );
        let t = Terminal::start(&command)?;
        t.until("threads", |s| s.contains("threads in"))?;
        let pid = std::fs::read_to_string(&own).map_err(|e| Error::Output(e.to_string()))?;
        let pid = pid
            .trim()
            .parse()
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        match (t.ends()?, t.screen()?) {
            (0, screen) if !screen.contains("threads in") => Ok(()),
            (status, screen) => Err(Error::Output(format!("ends with {status}:\n{screen}"))),
        }
    });
}

#[test]
fn without_a_terminal_it_refuses_or_prints_once() {
    with_tool("top --once", |tool| {
        let refused = tool.run(&["top", "-p", &std::process::id().to_string()])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        if refused.status.code() != Some(2) || !said.contains("--once") {
            return Err(Error::Output(said));
        }
        let mut program = Program::start("convoy", &["--seconds", "600"])?;
        program.release()?;
        let pid = program.pids()[0].to_string();
        let out = tool.run(&[
            "top",
            "-p",
            &pid,
            "--once",
            "-I",
            "500ms",
            "--by",
            "functions",
        ])?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        match out.status.code() {
            Some(3) => return Err(Error::CannotRunHere(said)),
            Some(0) if text.contains("convoy_") && !text.contains('\x1b') => {}
            _ => return Err(Error::Output(format!("{text}\n{said}"))),
        }
        let none = tool.run(&["top", "-p", "4194000", "--once"])?;
        if none.status.code() != Some(4) {
            return Err(Error::Output(format!("{none:?}")));
        }
        Ok(())
    });
}
