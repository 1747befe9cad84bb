//! Prints the hottest stacks of each state of a made-up service, and the effect of a faster lock:
//! `cargo run -p wallscope-analysis --example views`

use std::error::Error;

use wallscope_analysis::queueing::mva::{Network, Station};
use wallscope_analysis::select::Selection;
use wallscope_analysis::view::{Analysis, Idle};
use wallscope_model::{State, View, units};

fn main() -> Result<(), Box<dyn Error>> {
    let recording = wallscope_synthetic::recording(8);
    let analysis = Analysis::new(&recording, Idle::Hide);
    for view in [View::OnCpu, View::OffCpu, View::RunQueue] {
        let total = analysis.total(view);
        println!("{view:?}: {}", units::ns(total.shown_ns()));
        for row in analysis.stacks(view, 3) {
            let leaf = row
                .frames
                .first()
                .map_or("[no frames]", |f| &f.function.name);
            println!(
                "  {:>9}  {leaf} ({} threads)",
                units::ns(row.ns),
                row.threads
            );
        }
    }
    // A selection is a recording: its ledgers hold only the selected time.
    let selection = Selection {
        states: vec![State::Blocked],
        ..Selection::default()
    };
    let blocked = selection.apply(recording)?.recording;
    let wall: u64 = blocked.contexts.iter().map(|c| c.ledger.wall_ns).sum();
    println!("blocked alone: {}", units::ns(wall));

    for service in [0.010, 0.005] {
        let lock = Station {
            service,
            variation: 1.0,
            servers: 1,
        };
        let threads = Network {
            think: 0.020,
            stations: vec![lock],
        };
        let rate = threads.solve(8.0).throughput;
        println!("8 threads, lock held for {service} s: {rate:.0} cycles a second");
    }
    Ok(())
}
