//! Exit codes and bad days of the real binary, as the contract has them. Where the binary or the
//! privilege is missing, one line says so.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use wallscope_testkit::tool::{Options, no_panic};
use wallscope_testkit::{Error, Program, Tool, live};

/// Runs a test with the real binary.
fn with_tool(name: &str, test: impl FnOnce(&Tool) -> Result<(), Error>) {
    let outcome = Tool::find().and_then(|tool| test(&tool.replayed()));
    match outcome {
        Ok(()) => {}
        Err(Error::CannotRunHere(why)) => live::cannot_run(name, &why),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Checks the status, that something was said, and that it was no panic.
fn ended_with(output: &Output, status: i32) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(!said.trim().is_empty(), "a failure is explained");
    no_panic(&said);
}

#[test]
fn a_target_that_does_not_exist_is_4() {
    with_tool("no target", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let file = file.to_str().unwrap();
        let output = tool.run(&["record", "-o", file, "-d", "1", "-p", "4194000"])?;
        ended_with(&output, 4);
        assert!(String::from_utf8_lossy(&output.stderr).contains("4194000"));
        Ok(())
    });
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_the_command_runs() {
    with_tool("bad output", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("ran");
        let mark = mark.to_str().unwrap();
        let output = tool.run(&["record", "-o", "/proc/no/such/file", "--", "touch", mark])?;
        ended_with(&output, 1);
        assert!(!Path::new(mark).exists(), "the command ran");
        Ok(())
    });
}

#[test]
fn a_command_of_several_lines_is_told_in_one() {
    with_tool("lines", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let file = file.to_str().unwrap();
        let output = tool.run(&["record", "-o", file, "--", "sh", "-c", "true\ntrue"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let live = said.lines().find(|line| line.contains("recording"));
        assert!(
            live.is_some_and(|line| line.ends_with("ends it)")),
            "{said}"
        );
        Ok(())
    });
}

#[test]
fn an_output_that_is_no_file_is_written_to_and_stays() {
    with_tool("odd outputs", |tool| {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        // As /dev/null or a terminal would be: nothing that a finished file may be put in place of.
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read(fifo).unwrap())
        };
        let name = fifo.to_str().unwrap();
        let output = tool.run(&["record", "-o", name, "--", "true"])?;
        assert!(output.status.success());
        let told = reader.join().unwrap();
        assert!(told.starts_with(b"\x1f\x8b"), "{} bytes", told.len());
        assert!(fifo.metadata().unwrap().file_type().is_fifo());
        // What a link leads to is written, and the link stays.
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let output = tool.run(&["record", "-o", link.to_str().unwrap(), "--", "true"])?;
        assert!(output.status.success());
        assert!(
            link.is_symlink() && std::fs::read(&file).unwrap() == std::fs::read(&link).unwrap()
        );
        assert!(
            tool.run(&["report", file.to_str().unwrap()])?
                .status
                .success()
        );
        Ok(())
    });
}

#[test]
fn a_recording_survives_those_who_stop_listening() {
    with_tool("no listener", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = Command::new(tool.path())
            .args([
                "record",
                "-F",
                "100",
                "-o",
                file.to_str().unwrap(),
                "--",
                "true",
            ])
            .stderr(writer)
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        assert!(
            tool.run(&["report", file.to_str().unwrap()])?
                .status
                .success()
        );
        Ok(())
    });
}

#[test]
fn a_second_interruption_loses_nothing() {
    with_tool("second interruption", |tool| {
        use rustix::process::{self, PidfdFlags, Signal};
        let mut program = Program::start("mix", &["--seconds", "60"])?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let mut recorder = Command::new(tool.path())
            .args(["record", "-o", file.to_str().unwrap(), "-p"])
            .arg(program.pids()[0].to_string())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(recorder.stderr.take().unwrap()).lines();
        let live = said.find(|line| line.as_ref().is_ok_and(|l| l.contains("recording")));
        if live.is_none() && recorder.wait().unwrap().code() == Some(3) {
            return Err(Error::CannotRunHere("not permitted to record".into()));
        }
        let reader = std::thread::spawn(move || said.count());
        program.release()?;
        let pid = process::Pid::from_raw(recorder.id() as i32).unwrap();
        let handle = process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        // Again and again, while the recording is put together, named and written.
        while recorder.try_wait().unwrap().is_none() {
            let _ = process::pidfd_send_signal(&handle, Signal::INT);
            std::thread::sleep(Duration::from_millis(1));
        }
        reader.join().unwrap();
        drop(program);
        let report = tool.run(&["report", file.to_str().unwrap()])?;
        assert!(report.status.success(), "{report:?}");
        Ok(())
    });
}

#[test]
fn each_program_of_a_process_has_its_name() {
    with_tool("programs", |tool| {
        // The shell computes, then becomes one that sleeps.
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exec sleep 0.3";
        let recorder = tool.record(&["--", "sh", "-c", script], &Options::at(499))?;
        let recorded = recorder.ends_with(0)?;
        let time = |program: &str, state: &str| -> Result<u64, Error> {
            let label = format!("program={program}");
            let lines = recorded.folded_where("wall", &["--label", &label])?;
            let those = lines.iter().filter(|line| line.state == state);
            Ok(those.map(|line| line.ns).sum())
        };
        let report = recorded.report()?;
        let thread = &report.threads[0];
        assert_eq!(thread.name, "sleep");
        // Starting `sleep` computes a little too, and a shell may wait for its own pages.
        let on_cpu = time("sh", "on_cpu")?;
        assert!(on_cpu > thread.on_cpu_ns / 2, "{on_cpu} of {thread:?}");
        let blocked = time("sleep", "blocked")?;
        assert!(blocked >= 290_000_000, "{blocked} of {thread:?}");
        let text = tool.run(&["report", recorded.path().to_str().unwrap()])?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("before: sh"), "{text}");
        Ok(())
    });
}

#[test]
fn a_command_passes_its_status_on() {
    with_tool("status", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let name = file.to_str().unwrap();
        for (command, status) in [
            (&["sh", "-c", "exit 7"][..], 7),
            (&["sh", "-c", "kill -TERM $$"], 128 + 15),
            (&["true"], 0),
        ] {
            let arguments = [&["record", "-o", name, "--"], command].concat();
            let output = tool.run(&arguments)?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
            assert!(file.exists(), "the file is written: {command:?}: {said}");
            let report = tool.run(&["report", name])?;
            assert!(
                report.status.success(),
                "{}",
                String::from_utf8_lossy(&report.stderr)
            );
            std::fs::remove_file(&file).unwrap();
        }
        ended_with(
            &tool.run(&["record", "-o", name, "--", "/no/such/program"])?,
            127,
        );
        ended_with(
            &tool.run(&["record", "-o", name, "--", "/etc/passwd"])?,
            126,
        );
        Ok(())
    });
}

#[test]
fn among_process_ids_that_are_not_the_kernel_s_nobody_else_is_measured() {
    with_tool("pid namespace", |tool| {
        let apart = |arguments: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--mount-proc"]);
            command.args(arguments).output()
        };
        if !apart(&["true"]).is_ok_and(|o| o.status.success()) {
            eprintln!("skipped pid namespace: `unshare --pid --fork --mount-proc true` fails here");
            return Ok(());
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let file = file.to_str().unwrap();
        let record = |more: &[&str]| {
            let start = [tool.path().to_str().unwrap(), "record", "-o", file];
            apart(&[&start, more, &["--", "true"]].concat()).unwrap()
        };
        ended_with(&record(&["--backend", "ebpf"]), 3);
        // Some other backend may work, and then sees the command.
        let output = record(&[]);
        if output.status.success() {
            let report = tool.run(&["report", "--json", file])?;
            let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
            assert_ne!(report["domain"]["backend"], "ebpf");
            assert_ne!(report["threads"].as_array().map(Vec::len), Some(0));
        }
        Ok(())
    });
}

#[test]
fn a_file_that_cannot_be_read_is_5() {
    with_tool("bad input", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("junk.pb.gz");
        for junk in [
            &b""[..],
            b"\x1f\x8b\x08",
            b"no profile at all",
            &[0xff; 4096],
        ] {
            std::fs::write(&file, junk).unwrap();
            ended_with(&tool.run(&["report", file.to_str().unwrap()])?, 5);
        }
        ended_with(&tool.run(&["report", "/no/such/file"])?, 5);
        Ok(())
    });
}

#[test]
fn wrong_usage_is_2() {
    with_tool("usage", |tool| {
        ended_with(&tool.run(&["record", "--no-such-flag"])?, 2);
        ended_with(&tool.run(&["record", "-F", "0", "--", "true"])?, 2);
        Ok(())
    });
}

#[test]
fn who_may_not_look_into_a_process_is_told_so() {
    with_tool("count without privilege", |tool| {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::CannotRunHere("needs root, to be another".into()));
        }
        let mut program = Program::start("mix", &["--seconds", "0.3"])?;
        let pid = program.pids()[0].to_string();
        for verb in ["count", "latency"] {
            let mut command = Command::new(tool.path());
            command.args([verb, "mix_spin", "-p", &pid, "-d", "1"]);
            let output = std::os::unix::process::CommandExt::uid(&mut command, 65534).output();
            ended_with(&output.map_err(|e| Error::Start(e.to_string()))?, 3);
        }
        program.release()?;
        program.truth(Duration::from_secs(60))?;
        program.finish()
    });
}

#[test]
fn a_recording_ends_with_its_target() {
    with_tool("target ends", |tool| {
        let mut program = Program::start("mix", &["--seconds", "0.3"])?;
        let recorder = tool.attach(program.pids(), &Options::at(99))?;
        program.release()?;
        let truth = program.truth(Duration::from_secs(60))?;
        program.finish()?;
        let recorded = recorder.ends_with(0)?;
        let report = recorded.report()?;
        for own in &truth.threads {
            assert!(report.thread(own.pid, own.tid).is_some(), "{own:?}");
        }
        Ok(())
    });
}

#[test]
fn a_killed_recorder_leaves_the_target_alone() {
    with_tool("kill -9", |tool| {
        let mut program = Program::start("mix", &["--seconds", "0.5"])?;
        let recorder = tool.attach(program.pids(), &Options::at(499))?;
        program.release()?;
        // Dropping kills it with SIGKILL and waits for its end.
        drop(recorder);
        let truth = program.truth(Duration::from_secs(60))?;
        assert!(truth.threads.iter().all(|thread| thread.operations > 0));
        // And the next recording of the same program is as good as the first.
        let again = tool.attach(program.pids(), &Options::at(99))?;
        again.stop()?.report()?;
        program.finish()
    });
}

#[test]
fn what_a_command_leaves_behind_is_told() {
    with_tool("a daemon", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let file = file.to_str().unwrap();
        let daemon = "sleep 5 <&- >/dev/null 2>&1 & echo $!";
        let output = tool.run(&["record", "-o", file, "--", "sh", "-c", daemon])?;
        ended_with(&output, 0);
        let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("still runs") && said.contains(&pid), "{said}");
        Ok(())
    });
}

#[test]
fn a_command_is_recorded_from_its_first_moment() {
    with_tool("command", |tool| {
        let command = ["mix", "--seconds", "0.5"];
        let run = tool.measure_launched(&command, &Options::at(4999))?;
        for own in &run.truth.threads {
            let thread = run
                .report
                .thread(own.pid, own.tid)
                .expect("every thread is seen");
            // Its whole work lies in the window.
            let work = own.work_wall_ns;
            assert!(thread.wall_ns >= work, "{} of {work} ns", thread.wall_ns);
        }
        // The child of the recorder that becomes the command is none of it.
        for line in &run.stacks {
            let of_recorder = |name: &str| {
                // libstdc++, which the command loads, has functions in `std::` as well.
                ["wallscope_", "wallscope+", "std::sys::", "std::process::"]
                    .iter()
                    .any(|of| name.contains(of))
            };
            let own = line.frames.iter().find(|frame| of_recorder(&frame.name));
            assert!(own.is_none(), "{own:?} in {line:?}");
            assert_ne!(line.thread, "wallscope");
        }
        Ok(())
    });
}

#[test]
fn a_live_target_is_measured_by_the_backend_that_is_named() {
    with_tool("named backend", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let file = file.to_str().unwrap();
        let asked = ["ladder", "--backend", "proc", "--json", "-o", file];
        let output = tool.run(&[&asked[..], &["-d", "300ms", "--", "sleep", "9"]].concat())?;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = tool.run(&["report", file, "--json"])?;
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(said["domain"]["backend"], "proc");
        // A recording has been made.
        let output = tool.run(&["ladder", file, "--backend", "proc"])?;
        ended_with(&output, 2);
        Ok(())
    });
}

/// Processes come and go faster than anybody can look at each: that ends in time all the same.
#[test]
fn a_storm_of_forks_does_not_hold_up_the_end() {
    for backend in ["ebpf", "perf", "proc"] {
        with_tool(&format!("storm of forks by {backend}"), |tool| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("out.pb.gz");
            let record = ["record", "--backend", backend, "-d", "4", "-o"];
            let storm = ["--", "sh", "-c", "while :; do (:); done"];
            // It once never ended, and a test must.
            let mut recorder = Command::new("timeout")
                .args(["--signal=KILL", "60"])
                .arg(tool.path())
                .args(record)
                .arg(&file)
                .args(storm)
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = String::new();
            let mut stderr = recorder.stderr.take().unwrap();
            stderr.read_to_string(&mut said).unwrap();
            match recorder.wait().unwrap().code() {
                Some(3) => return Err(Error::CannotRunHere(said)),
                status => assert_eq!(status, Some(0), "{backend}: {said}"),
            }
            let report = tool.run(&["report".as_ref(), file.as_os_str(), "--json".as_ref()])?;
            let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
            assert_eq!(report["domain"]["backend"], backend);
            // It was there to be seen: even a busy machine makes hundreds a second.
            let threads = report["threads"].as_array().unwrap().len();
            let least = if backend == "proc" { 1 } else { 100 };
            assert!(threads >= least, "{backend}: {threads} threads");
            Ok(())
        });
    }
}
