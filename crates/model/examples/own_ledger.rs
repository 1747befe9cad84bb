//! Measures its own thread for half a second and prints the ledger, with the time that no state explains:
//! `cargo run -p wallscope-model --example own_ledger`

use std::error::Error;
use std::time::{Duration, Instant};

use wallscope_model::{BlockReason, Ledger, State, units};

/// On-CPU time and run-queue latency of this thread so far, ns, by the kernel's count.
fn kernel_figures() -> Result<(u64, u64), Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next().ok_or("schedstat has three numbers");
    Ok((next()??, next()??))
}

fn main() -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let before = kernel_figures()?;
    let mut ledger = Ledger::default();
    let mut sum = 0u64;
    while begun.elapsed() < Duration::from_millis(500) {
        for i in 0..1_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        let asleep = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
        ledger.blocked[BlockReason::Timer as usize] += asleep.elapsed().as_nanos() as u64;
        ledger.voluntary_switches += 1;
    }
    let after = kernel_figures()?;
    ledger.wall_ns = begun.elapsed().as_nanos() as u64;
    ledger.on_cpu.user = after.0 - before.0;
    ledger.runnable.woken = after.1 - before.1;
    for state in State::ALL {
        println!("{:<9} {}", state.name(), units::ns(ledger.state_ns(*state)));
    }
    println!("{:<9} {}", "wall", units::ns(ledger.wall_ns));
    // A sleep by the clock includes the wait for a CPU after it, so these parts overlap: a negative residue.
    println!("residue   {} ns", ledger.residue_ns());
    Ok(())
}
