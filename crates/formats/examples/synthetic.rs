//! Writes a synthetic recording to the file named by the first argument; the second is the number
//! of worker threads. For looking at reports without recording anything.

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "synthetic.pb.gz".to_string());
    let workers = args.next().and_then(|n| n.parse().ok()).unwrap_or(4);
    let recording = wallscope_synthetic::recording(workers);
    let scaled = wallscope_model::scale::scale(&recording);
    let file = std::fs::File::create(path)?;
    wallscope_formats::pprof::write(&recording, &scaled, file)?;
    Ok(())
}
