//! Prints the threads of a process with their CPU time and run-queue latency; without a pid, its own:
//! `cargo run -p wallscope-procfs --example threads -- PID`

use std::error::Error;

use wallscope_procfs::{cgroup, maps, process};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = match std::env::args().nth(1) {
        Some(pid) => pid.parse()?,
        None => std::process::id(),
    };
    println!("{} (pid {pid})", process::exe(pid)?.display());
    for tid in process::threads(pid)? {
        // A thread may end between the two reads.
        let (Ok(name), Ok(stat)) = (process::comm(pid, tid), process::sched_stat(pid, tid)) else {
            continue;
        };
        println!(
            "{tid:>8} {name:<16} {:>12} ns on a CPU, {:>12} ns in run queues, {} turns",
            stat.on_cpu_ns, stat.run_delay_ns, stat.timeslices
        );
    }
    let code = maps::read(pid)?.into_iter().filter(|m| m.execute);
    let bytes: u64 = code.map(|m| m.end - m.start).sum();
    println!("{bytes} bytes of code are mapped");
    if let Some(group) = cgroup::group_of(pid, "cpu") {
        println!("its control group: {group:?}");
    }
    Ok(())
}
