//! An agent that a task starts, and the figures that it tells.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Outcome;

/// An agent with a store of its own; it ends with this value.
pub struct Agent {
    child: Child,
    address: String,
}

/// What its metrics said at one moment.
pub struct Metrics(String);

impl Metrics {
    /// The value of a sample by its name and labels as they stand in the text; 0 where there is none.
    pub fn value(&self, sample: &str) -> f64 {
        let rest = (self.0.lines()).find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        rest.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    /// Starts `program agent` with its files in `folder` and these further settings. It is live when this returns.
    ///
    /// # Errors
    /// It cannot run here.
    pub fn start(program: &Path, folder: &Path, settings: &str) -> Outcome<Agent> {
        let config = folder.join("agent.toml");
        let text = format!(
            "agent.run_dir = {:?}\nstore.dir = {:?}\nstore.max_bytes = \"64MiB\"\n\
             metrics.listen = \"127.0.0.1:0\"\n{settings}",
            folder.join("run"),
            folder.join("store")
        );
        fs::write(&config, text)?;
        let mut child = Command::new(program)
            .args(["agent", "--config"])
            .arg(&config)
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said.push_str(&line);
            let (_, address) = line.split_once("metrics at http://")?;
            Some(address.trim_end_matches("/metrics").to_string())
        });
        // Nobody else reads, and a full pipe would stop the agent.
        std::thread::spawn(move || {
            (lines.map_while(Result::ok)).for_each(|line| eprintln!("{line}"));
        });
        let address = address.ok_or(said)?;
        Ok(Agent { child, address })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its metrics now.
    ///
    /// # Errors
    /// It has ended, or does not answer.
    pub fn metrics(&mut self) -> Outcome<Metrics> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("the agent ended: {status}").into());
        }
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(Metrics(text))
    }
}
