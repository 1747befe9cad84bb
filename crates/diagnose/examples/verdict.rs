//! Prints the verdict on a made-up service, and every rule that was tried before one spoke:
//! `cargo run -p wallscope-diagnose --example verdict -- WORKERS`

use wallscope_diagnose::{finding, ladder::Ladder};

fn main() {
    let workers = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let recording = wallscope_synthetic::recording(workers.unwrap_or(8));
    println!("{}", finding(&recording).sentence);
    let ladder = Ladder::new(&recording);
    for tried in &ladder.tried {
        let spoke = if tried.spoke { "speaks" } else { "silent" };
        println!("{spoke}  {}: {}", tried.rule, tried.looked_at);
    }
}
