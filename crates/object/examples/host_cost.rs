//! What one reading of the host's facts costs: median and worst of a thousand, in microseconds.

use std::time::Instant;

use wallscope_object::host::HostReader;

fn main() {
    let mut reader = HostReader::open(Some(std::process::id()));
    println!("{:#?}", reader.read());
    let mut costs: Vec<_> = (0..1000)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(reader.read());
            begin.elapsed()
        })
        .collect();
    costs.sort_unstable();
    println!("median {:?}, worst {:?}", costs[500], costs[999]);
}
